"""Every Prometheus metric: its name, what it says, its labels and buckets.

Buckets are the same in every process, so that sums over replicas are exact. Names stand here
without `offramp_`, and counters without `_total`.
"""

from typing import Final, NamedTuple

# 0.25 ms to 30 s in steps of about 1.5, which is fine enough for a p99 of 2 ms.
REQUEST_SECONDS: Final = (*(round(0.00025 * 1.5**i, 6) for i in range(29)), 30.0)
# 10 us to 5 s in steps of 2, for a stage of one batch.
STAGE_SECONDS: Final = tuple(round(0.00001 * 2**i, 6) for i in range(20))
# Powers of 2, up to more rows than a batch holds.
ROWS: Final = tuple(2.0**i for i in range(10))


class Declared(NamedTuple):
    """A metric; `counts` tells a counter that is read at every scrape."""

    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    counts: bool = False


# Counted as it happens. The first label is the model, and is empty for what has reached none.
COUNTERS: Final = {
    "requests": Declared("HTTP requests by status code.", ("model", "route", "code")),
    "rejected": Declared("Requests that got an error of this code.", ("model", "code")),
    "client_disconnects": Declared("Clients that left before their answer.", ("model",)),
    "exits": Declared("Answers by exit layer and reason.", ("model", "layer", "reason")),
    # An answer of the cache counts as the one that it gives again, here and in the others.
    "layers_run": Declared("Transformer layers executed, summed over answers.", ("model",)),
    "layers_saved": Declared("Transformer layers not executed, summed over answers.", ("model",)),
    "input_tokens": Declared("Tokens of answered inputs.", ("model",)),
    "batch_tokens": Declared("Real tokens that went through a segment.", ("model", "layer")),
    "padding_tokens": Declared("Padding that went through a segment.", ("model", "layer")),
}
HISTOGRAMS: Final = {
    "request_duration_seconds": Declared(
        "From the end of a request's body to its answer; without refusals (4xx).",
        ("model", "route"),
        REQUEST_SECONDS,
    ),
    "stage_duration_seconds": Declared(
        "Time per stage: tokenize a request, queue a row, run a segment, judge a batch.",
        ("model", "stage"),
        STAGE_SECONDS,
    ),
    "segment_duration_seconds": Declared(
        "Time in the segment that ends at this layer.", ("model", "layer"), STAGE_SECONDS
    ),
    # One bucket for layer 0, and one per layer of the deepest model.
    "exit_layer": Declared(
        "Transformer layers executed per answer, by reason; one bucket per layer.",
        ("model", "reason"),
    ),
    "batch_rows": Declared("Rows per segment run.", ("model", "layer"), ROWS),
}

BUILD_INFO: Final = Declared("The version that runs.", ("version",))
# Read of the served models at every scrape.
OF_MODELS: Final = {
    "audits": Declared(
        "Drawn answers of this replica by what their audit has found.",
        ("model", "profile", "outcome"),
        counts=True,
    ),
    "degraded_answers": Declared(
        "Answers that are less than what was asked for, because the server was overloaded.",
        ("model", "reason"),
        counts=True,
    ),
    "rollout_answers": Declared(
        "Texts of this replica that count in verdicts on rollouts, by arm.",
        ("model", "arm"),
        counts=True,
    ),
    "rollout_percent": Declared(
        "Requests that follow the candidate of a rollout, in percent; 0 without one.", ("model",)
    ),
    "rollout_failed": Declared(
        "1 while the live policy is the one that a failed rollout has gone back to.", ("model",)
    ),
    "queue_depth": Declared("Rows admitted and not yet answered.", ("model",)),
    "queue_tokens": Declared("Tokens of the rows admitted and not yet answered.", ("model",)),
    "queue_seconds": Declared("Estimated time to answer the admitted rows.", ("model",)),
    "overload_level": Declared("Rungs that requests move because the queue is long.", ("model",)),
    "batches_retried": Declared(
        "Batches that ran again in parts, because memory did not suffice.", ("model",), counts=True
    ),
    "answer_cache_rows": Declared(
        "Texts and windows by what the answer cache had of them: hit, waited or miss.",
        ("model", "outcome"),
        counts=True,
    ),
    "answer_cache_bytes": Declared("Estimated size of the answers that are kept.", ("model",)),
    "engine_up": Declared("1 while the model's engine runs.", ("model",)),
    "policy_version": Declared("Version of the live policy.", ("model",)),
    "policy_problems": Declared(
        "Default and profiles that mean something else than they say.", ("model",)
    ),
    "policy_by_guardrail": Declared(
        "1 while the live policy is one that the guardrail has made.", ("model",)
    ),
    "threshold": Declared(
        "Number in the live rule: threshold, votes, share, patience or layer; one per exit layer "
        "where the rule has as many.",
        ("model", "profile", "rule", "layer"),
    ),
    "disagreement": Declared(
        "Share of audited answers of all replicas that differ from full depth's, and bounds of the "
        "true share.",
        ("model", "profile", "bound"),
    ),
    "promise": Declared("What is promised to be lost at most.", ("model", "profile", "loss")),
    "promise_evidence": Declared(
        "log10 of the evidence, of all replicas' audits, that more is lost than is promised.",
        ("model", "profile", "loss"),
    ),
    "promise_broken": Declared(
        "1 while the evidence is enough for an alarm.", ("model", "profile", "loss")
    ),
    "model_info": Declared(
        "A served model.", ("model", "device", "precision", "layers", "task", "bundle", "node")
    ),
    "alias_info": Declared("A name that stands for a served model.", ("alias", "model")),
    "models_unfollowed": Declared(
        "1 while this replica cannot serve the models that it should, and serves others."
    ),
    "policy_config_refused": Declared(
        "1 while the deployment's policies are refused, and those before them stay."
    ),
}
# Read of the HTTP server at every scrape.
OF_CONNECTIONS: Final = {
    "connections": Declared("Open connections of the HTTP server."),
    "unsent_bytes": Declared("Bytes of large answers that clients have not taken yet."),
    "connections_closed": Declared(
        "Connections that the server closed or refused by itself.", ("reason",), counts=True
    ),
}
OF_REPLICAS: Final = {
    "replicas_wanted": Declared("Replicas that there should be."),
    "replicas_running": Declared("Replicas that answer requests."),
    "replicas_scraped": Declared("Replicas on this page."),
    "replicas_unreachable": Declared("Replicas that gave no metrics in time."),
}
