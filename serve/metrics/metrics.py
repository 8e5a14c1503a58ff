"""Turns what the engine and the HTTP app say of their work into the metrics page of one process.

On the page is what has happened, and at zero what an alert must see before it happens: Prometheus
knows how much a counter has grown only if it has seen the counter before.
"""

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from serve.access.held_bytes import HeldBytes
from serve.classifier.catalog import Catalog
from serve.engine.row import Answer, BatchStats
from serve.errors import Overloaded
from serve.http.settings import ConnectionState
from serve.metrics.names import (
    BUILD_INFO,
    COUNTERS,
    HISTOGRAMS,
    OF_CONNECTIONS,
    OF_MODELS,
    OF_REPLICAS,
)
from serve.metrics.scraped import FamilyCollector, connection_samples, model_samples
from serve.rules.criterion import Reason
from serve.rules.traits import Traits
from serve.version import __version__

# Once a route is used, its failures are on the page.
FAILURES: Final = ("500", "502", "503")
# How long a model stays on the page when it is served no more, so that Prometheus has seen all.
FORGET_AFTER_S: Final = 600.0


# From the values of a metric's labels, the first of which is the model, to its sample. It is kept:
# the library takes longer to find one than to count.
_Samples: TypeAlias = Callable[..., Any]


class Metrics:
    """The metrics of one process, in their own registry.

    Attributes:
        node: address of the Ray cluster's node that the process runs on; empty without Ray.
        answers: what clients have not taken yet, over HTTP and over gRPC.
    """

    def __init__(self, depth: int = 1) -> None:
        """Declare the metrics.

        `depth` is the most layers of any model; those of a deeper one that comes later are counted
        in the last bucket.
        """
        # Prometheus would store the times of creation as further series.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.node = ""
        self.answers: list[HeldBytes] = []
        self._catalog: Catalog | None = None
        self._used: set[tuple[str, str]] = set()  # models and routes
        self._gone_s: dict[str, float] = {}  # models that are served no more, and since when
        layers = tuple(float(layer) for layer in range(depth + 1))
        self._made: dict[str, Counter | Histogram] = {
            name: Counter(f"offramp_{name}", text, labels, registry=self.registry)
            for name, (text, labels, *_) in COUNTERS.items()
        }
        for name, (text, labels, buckets, _) in HISTOGRAMS.items():
            self._made[name] = Histogram(
                f"offramp_{name}", text, labels, buckets=buckets or layers, registry=self.registry
            )
        self._cached = {name: cache(made.labels) for name, made in self._made.items()}
        self._of: Mapping[str, _Samples] = self._cached
        text, labels, *_ = BUILD_INFO
        build = Gauge("offramp_build_info", text, labels, registry=self.registry)
        build.labels(__version__).set(1)
        self._of["rejected"]("", Overloaded.code)

    def watch(self, catalog: Catalog) -> None:
        """Publish the queues, policies and audits of these models too."""
        self._catalog = catalog
        read = FamilyCollector(OF_MODELS, lambda: model_samples(catalog, self.node))
        self.registry.register(read)

    def watch_connections(self, state: ConnectionState) -> None:
        """Publish the connections of this process's HTTP server too."""
        read = FamilyCollector(OF_CONNECTIONS, lambda: connection_samples(state, self.answers))
        self.registry.register(read)

    def count_only_replica(self) -> None:
        """Publish that one replica is wanted and runs: this process."""
        for name in ("replicas_wanted", "replicas_running"):
            text = OF_REPLICAS[name].text
            Gauge(f"offramp_{name}", text, registry=self.registry).set(1)

    def page(self) -> bytes:
        """Return the metrics as Prometheus text, without models that are gone for long."""
        if self._catalog is not None:
            names = [classifier.name for classifier in self._catalog]
            self._forget_gone({"", *names, *map(in_front, names)})
        return generate_latest(self.registry)

    def observer(self, model: str, traits: Traits) -> "ModelObserver":
        """Return the observer of one model.

        What was counted of a model of the same name goes on.
        """
        self._used.add((model, ""))
        return ModelObserver(self._of, model, traits)

    def request(self, model: str, route: str, code: int, duration_s: float | None) -> None:
        """Count an HTTP request; `model` is empty if the request has reached no model.

        The duration is None where the client alone has decided it.
        """
        requests = self._of["requests"]
        if (model, route) not in self._used:
            self._used.add((model, route))
            for failure in FAILURES:
                requests(model, route, failure)
        requests(model, route, str(code)).inc()
        if duration_s is not None:
            self._of["request_duration_seconds"](model, route).observe(duration_s)

    def rejected(self, model: str, code: str) -> None:
        """Count a request that got an error; `model` is empty if it has reached no model."""
        self._of["rejected"](model, code).inc()

    def disconnected(self, model: str) -> None:
        """Count a client that left before its answer."""
        self._of["client_disconnects"](model).inc()

    def _forget_gone(self, served: set[str]) -> None:
        now_s = time.monotonic()
        gone = {model for model, _ in list(self._used)} - served
        self._gone_s = {model: self._gone_s.get(model, now_s) for model in gone}
        for model, since_s in self._gone_s.items():
            if now_s - since_s >= FORGET_AFTER_S:
                self._used -= {used for used in list(self._used) if used[0] == model}
                for name, made in self._made.items():
                    made.remove_by_labels({"model": model})
                    self._cached[name].cache_clear()


def in_front(model: str) -> str:
    """Return the name under which the small model in front of a model is counted."""
    return f"{model}/small"


class ModelObserver:
    """Counts one model's work, as a `serve.classifier.classifier.Observer`."""

    def __init__(self, of: Mapping[str, _Samples], model: str, traits: Traits) -> None:
        self._of, self._model, self._traits = of, model, traits
        stage = of["stage_duration_seconds"]
        self._tokenize, self._queue, self._segment, self._judge = (
            stage(model, name) for name in ("tokenize", "queue", "segment", "judge")
        )
        self._run, self._saved, self._tokens = (
            of[name](model) for name in ("layers_run", "layers_saved", "input_tokens")
        )
        of["client_disconnects"](model)
        of["rejected"](model, Overloaded.code)
        for layer in traits.layers:
            of["exits"](model, str(layer), Reason.CONFIDENT.label)

    def batch(self, stats: BatchStats) -> None:
        """Count a segment run."""
        of, labels = self._of, (self._model, str(self._traits.exits[stats.exit_index]))
        self._segment.observe(stats.segment_s)
        self._judge.observe(stats.judge_s)
        of["segment_duration_seconds"](*labels).observe(stats.segment_s)
        of["batch_rows"](*labels).observe(stats.num_rows)
        of["batch_tokens"](*labels).inc(stats.num_tokens)
        of["padding_tokens"](*labels).inc(stats.padded_tokens - stats.num_tokens)

    def answer(self, answer: Answer, num_tokens: int) -> None:
        """Count an answer."""
        layer, reason = self._traits.layer_of(answer.exit_index), answer.reason.label
        self._of["exit_layer"](self._model, reason).observe(layer)
        self._of["exits"](self._model, str(layer), reason).inc()
        self._run.inc(layer)
        self._saved.inc(self._traits.exits[-1] - layer)
        self._tokens.inc(num_tokens)
        self._queue.observe(answer.queue_s)

    def tokenized(self, duration_s: float) -> None:
        """Count the tokenization of one request."""
        self._tokenize.observe(duration_s)
