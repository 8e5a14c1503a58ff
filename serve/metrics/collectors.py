"""Every Prometheus metric but those of connections: its name, labels and buckets.

The engine and the HTTP app return plain data; this module turns the data into metrics. Buckets
are the same in every process, so that sums over replicas are exact.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serve.access.held_bytes import HeldBytes
from serve.classifier.catalog import Catalog
from serve.classifier.classifier import Classifier
from serve.engine.row import Answer, BatchStats
from serve.metrics.audits import AuditCollector
from serve.metrics.connections import ConnectionCollector, ConnectionState
from serve.metrics.known_children import ANSWERED, CODES, REASONS, REFUSED
from serve.metrics.rollouts import RolloutCollector
from serve.rules import ExitRule
from serve.version import __version__

# 0.25 ms to 30 s in steps of about 1.5, which is fine enough for a p99 of 2 ms.
REQUEST_SECONDS = (*(round(0.00025 * 1.5**i, 6) for i in range(29)), 30.0)
# 10 us to 5 s in steps of 2, for a stage of one batch.
STAGE_SECONDS = tuple(round(0.00001 * 2**i, 6) for i in range(20))
# Names of models since the start: those that are served no more stay on the page.
_MOST_MODELS = 256
# Powers of 2, up to more rows than a batch holds.
ROWS = tuple(2.0**i for i in range(10))


class Metrics:
    """The metrics of one process, in their own registry.

    Attributes:
        node: address of the Ray cluster's node that the process runs on; empty without Ray.
        answers: that clients have not taken yet, over HTTP and over gRPC.
    """

    def __init__(self, exits_by_model: Mapping[str, tuple[int, ...]], depth: int = 1) -> None:
        """Declare the metrics of models with these exit layers, ascending.

        `depth` is the most layers that a model may have that comes later: those of a deeper one
        are counted in the last bucket.
        """
        # Prometheus would store the times of creation as further series.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.node = ""
        self.answers: list[HeldBytes] = []
        depth = max((depth, *(exits[-1] for exits in exits_by_model.values())))
        self._exits_by_model: dict[str, tuple[int, ...]] = {}
        self._expected: set[str] = set()
        # From the values of a metric's labels to its sample, which is kept: the library takes
        # longer to find one than to count.
        self._requests = self._counter(
            "requests", "HTTP requests by status code.", ["model", "route", "code"]
        )
        self._request_seconds = self._histogram(
            "request_duration_seconds",
            "From the end of a request's body to its answer; without refusals (4xx).",
            ["model", "route"],
            REQUEST_SECONDS,
        )
        self._stage_seconds = self._histogram(
            "stage_duration_seconds",
            "Time per stage: tokenize a request, queue a row, run a segment, judge a batch.",
            ["model", "stage"],
            STAGE_SECONDS,
        )
        self._segment_seconds = self._histogram(
            "segment_duration_seconds",
            "Time in the segment that ends at this layer.",
            ["model", "layer"],
            STAGE_SECONDS,
        )
        self._exit_layer = self._histogram(
            "exit_layer",
            "Transformer layers executed per answer, by reason; one bucket per layer.",
            ["model", "reason"],
            tuple(float(layer) for layer in range(1, depth + 1)),
        )
        self._exits = self._counter(
            "exits", "Answers by exit layer and reason.", ["model", "layer", "reason"]
        )
        self._layers_run = self._counter(
            "layers_run", "Transformer layers executed, summed over answers.", ["model"]
        )
        self._layers_saved = self._counter(
            "layers_saved", "Transformer layers not executed, summed over answers.", ["model"]
        )
        self._batch_rows = self._histogram(
            "batch_rows", "Rows per segment run.", ["model", "layer"], ROWS
        )
        self._batch_tokens = self._counter(
            "batch_tokens", "Real tokens that went through a segment.", ["model", "layer"]
        )
        self._padding = self._counter(
            "padding_tokens", "Padding that went through a segment.", ["model", "layer"]
        )
        self._input_tokens = self._counter("input_tokens", "Tokens of answered inputs.", ["model"])
        self._rejected = self._counter(
            "rejected", "Requests that got an error of this code.", ["model", "code"]
        )
        self._disconnects = self._counter(
            "client_disconnects", "Clients that left before their answer.", ["model"]
        )
        for code in CODES:
            self._rejected("", code)
        for model, exits in exits_by_model.items():
            self.add_model(model, exits)
        Gauge(
            "offramp_build_info", "The version that runs.", ["version"], registry=self.registry
        ).labels(__version__).set(1)

    def add_model(self, model: str, exits: tuple[int, ...]) -> bool:
        """Publish what may be counted of a model with these exit layers, from 0 on.

        What was counted of a model of the same name goes on: a counter never goes back. So the
        names are bounded; return whether there was room for one.
        """
        if model not in self._exits_by_model and len(self._exits_by_model) >= _MOST_MODELS:
            return False
        self._exits_by_model[model] = exits
        for code in CODES:
            self._rejected(model, code)
        for route in self._expected:
            self._expect(model, route)
        return True

    def watch(self, catalog: Catalog) -> None:
        """Publish the queues, policies and audits of these models too."""
        self.registry.register(_LiveState(catalog, self))
        self.registry.register(AuditCollector(catalog))
        self.registry.register(RolloutCollector(catalog))

    def watch_connections(self, state: ConnectionState) -> None:
        """Publish the connections of this process's HTTP server too."""
        self.registry.register(ConnectionCollector(state, self.answers))

    def count_only_replica(self) -> None:
        """Publish that one replica is wanted and runs: this process."""
        for name, text in _REPLICAS.items():
            Gauge(f"offramp_{name}", text, registry=self.registry).set(1)

    def page(self) -> bytes:
        """Return the metrics as Prometheus text."""
        return generate_latest(self.registry)

    def expect(self, routes: Iterable[str]) -> None:
        """Publish what requests to these routes may count, before the first of them."""
        for route in routes:
            self._expected.add(route)
            for status in REFUSED:
                self._requests("", route, status)
            for model in self._exits_by_model:
                self._expect(model, route)

    def _expect(self, model: str, route: str) -> None:
        self._request_seconds(model, route)
        for status in ANSWERED:
            self._requests(model, route, status)

    def observer(self, model: str) -> "ModelObserver":
        """Return the observer of one model."""
        return ModelObserver(self, model, self._exits_by_model[model])

    def request(self, model: str, route: str, code: int, duration_s: float | None) -> None:
        """Count an HTTP request; `model` is empty if the request has reached no model.

        The duration is None where the client alone has decided it.
        """
        self._requests(model, route, str(code)).inc()
        if duration_s is not None:
            self._request_seconds(model, route).observe(duration_s)

    def rejected(self, model: str, code: str) -> None:
        """Count a request that got an error; `model` is empty if it has reached no model."""
        self._rejected(model, code).inc()

    def disconnected(self, model: str) -> None:
        """Count a client that left before its answer."""
        self._disconnects(model).inc()

    def _counter(self, name: str, text: str, labels: list[str]) -> Callable[..., Counter]:
        made = Counter(f"offramp_{name}", text, labels, registry=self.registry)
        return cache(made.labels)

    def _histogram(
        self, name: str, text: str, labels: list[str], buckets: Iterable[float]
    ) -> Callable[..., Histogram]:
        made = Histogram(
            f"offramp_{name}", text, labels, buckets=tuple(buckets), registry=self.registry
        )
        return cache(made.labels)


class ModelObserver:
    """Counts one model's work, as a `serve.classifier.classifier.Observer`."""

    def __init__(self, metrics: Metrics, model: str, exits: tuple[int, ...]) -> None:
        self._exits = exits
        self._metrics, self._model = metrics, model
        stage = metrics._stage_seconds
        self._tokenize, self._queue, self._segment, self._judge = (
            stage(model, name) for name in ("tokenize", "queue", "segment", "judge")
        )
        self._publish_zeros()

    def _publish_zeros(self) -> None:
        """Publish what batches and answers may count, before the first of them."""
        metrics, model = self._metrics, self._model
        for whole in (metrics._layers_run, metrics._layers_saved, metrics._input_tokens):
            whole(model)
        metrics._disconnects(model)
        for reason in REASONS:
            metrics._exit_layer(model, reason)
        for layer in map(str, self._exits):
            for reason in REASONS:
                metrics._exits(model, layer, reason)
            metrics._segment_seconds(model, layer)
            metrics._batch_rows(model, layer)
            metrics._batch_tokens(model, layer)
            metrics._padding(model, layer)

    def batch(self, stats: BatchStats) -> None:
        """Count a segment run."""
        metrics, labels = self._metrics, (self._model, str(self._exits[stats.exit_index]))
        self._segment.observe(stats.segment_s)
        self._judge.observe(stats.judge_s)
        metrics._segment_seconds(*labels).observe(stats.segment_s)
        metrics._batch_rows(*labels).observe(stats.num_rows)
        metrics._batch_tokens(*labels).inc(stats.num_tokens)
        metrics._padding(*labels).inc(stats.padded_tokens - stats.num_tokens)

    def answer(self, answer: Answer, num_tokens: int) -> None:
        """Count an answer."""
        metrics, model = self._metrics, self._model
        layer = self._exits[answer.exit_index]
        reason = answer.reason.label
        metrics._exit_layer(model, reason).observe(layer)
        metrics._exits(model, str(layer), reason).inc()
        metrics._layers_run(model).inc(layer)
        metrics._layers_saved(model).inc(self._exits[-1] - layer)
        metrics._input_tokens(model).inc(num_tokens)
        self._queue.observe(answer.queue_s)

    def tokenized(self, duration_s: float) -> None:
        """Count the tokenization of one request."""
        self._tokenize.observe(duration_s)


class _LiveState(Collector):
    """Gauges that are read at every scrape: queues, engines, policies, thresholds."""

    def __init__(self, catalog: Catalog, metrics: Metrics) -> None:
        self._catalog, self._metrics = catalog, metrics

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges of every model."""
        gauges = {
            name: GaugeMetricFamily(f"offramp_{name}", text, labels=labels)
            for name, (text, labels) in _LIVE_GAUGES.items()
        }
        for classifier in self._catalog:
            for name, labels, value in _live_values(classifier, self._metrics.node):
                gauges[name].add_metric([classifier.name, *labels], value)
        for alias, model in self._catalog.aliases.items():
            gauges["alias_info"].add_metric([alias, model], 1)
        yield from gauges.values()
        yield self._degraded()
        unfollowed = float(self._catalog.unfollowed is not None)
        text = "1 while this replica cannot serve the models that it should, and serves others."
        yield GaugeMetricFamily("offramp_models_unfollowed", text, unfollowed)
        refused = float(self._catalog.config_problem is not None)
        text = "1 while the deployment's policies are refused, and those before them stay."
        yield GaugeMetricFamily("offramp_policy_config_refused", text, refused)

    def _degraded(self) -> Metric:
        text = "Answers that are less than what was asked for, because the server was overloaded."
        found = CounterMetricFamily("offramp_degraded_answers", text, labels=["model", "reason"])
        for classifier in self._catalog:
            for cause, number in classifier.degrading.counted.items():
                found.add_metric([classifier.name, cause], number)
        return found


_LIVE_GAUGES = {
    "queue_depth": ("Rows admitted and not yet answered.", ["model"]),
    "queue_tokens": ("Tokens of the rows admitted and not yet answered.", ["model"]),
    "queue_seconds": ("Estimated time to answer the admitted rows.", ["model"]),
    "overload_level": ("Rungs that requests move because the queue is long.", ["model"]),
    "engine_up": ("1 while the model's engine runs.", ["model"]),
    "policy_version": ("Version of the live policy.", ["model"]),
    "policy_problems": ("Default and profiles that mean something else than they say.", ["model"]),
    "threshold": (
        "Number in the live rule: threshold, votes, share, patience or layer; one per exit layer "
        "where the rule has as many.",
        ["model", "profile", "rule", "layer"],
    ),
    "alias_info": ("A name that stands for a served model.", ["alias", "model"]),
    "model_info": (
        "A served model.",
        ["model", "device", "precision", "layers", "task", "bundle", "node"],
    ),
}


_REPLICAS = {
    "replicas_wanted": "Replicas that there should be.",
    "replicas_running": "Replicas that answer requests.",
}


class Counted(NamedTuple):
    """How many replicas there are.

    Attributes:
        wanted: how many there should be: as configured, or as the autoscaler has decided.
        running: how many answer requests.
    """

    wanted: int
    running: int


def replica_gauges(counted: Counted, num_scraped: int, num_unreachable: int) -> Iterator[Metric]:
    """Yield the gauges of a page that several replicas are on."""
    for (name, text), number in zip(_REPLICAS.items(), counted, strict=True):
        yield GaugeMetricFamily(f"offramp_{name}", text, number)
    yield GaugeMetricFamily("offramp_replicas_scraped", "Replicas on this page.", num_scraped)
    yield GaugeMetricFamily(
        "offramp_replicas_unreachable", "Replicas that gave no metrics in time.", num_unreachable
    )


def _live_values(classifier: Classifier, node: str) -> Iterator[tuple[str, list[str], float]]:
    """Yield name, labels without the model's, and value of each sample."""
    backlog, followed = classifier.engine.backlog, classifier.policy.live
    live, applied, *_ = followed
    manifest = classifier.bundle.manifest
    yield "queue_depth", [], backlog.rows
    yield "queue_tokens", [], backlog.tokens
    yield "queue_seconds", [], backlog.seconds
    arms = (applied, followed.candidate.applied) if followed.candidate else (applied,)
    levels = [classifier.degrading.level(each.faster) for each in arms if each.faster]
    yield "overload_level", [], max(levels, default=0)
    yield "engine_up", [], float(classifier.engine.alive)
    yield "policy_version", [], live.version
    yield "policy_problems", [], len(applied.problems)
    placement, bundle = [classifier.device, classifier.precision], classifier.bundle
    shape = [str(manifest.num_layers), manifest.task]
    yield "model_info", [*placement, *shape, bundle.version, node], 1
    for profile, chosen in applied.named.items():
        rule = chosen.rule.rule
        for layer, number in _numbers_in(rule, manifest.exit_layers):
            yield "threshold", [profile, rule.rule, layer], number


def _numbers_in(rule: ExitRule, exits: tuple[int, ...]) -> Iterator[tuple[str, float]]:
    """Yield exit layer and number of the setting that decides how early rows leave.

    The layer is empty, which to Prometheus is no label, where one number is for all exits.
    Thresholds of single labels are not published.
    """
    for name in ("threshold", "votes", "share", "patience", "layer"):
        number = getattr(rule, name, None)
        if isinstance(number, tuple):
            yield from zip(map(str, exits), number, strict=True)
            return
        if number is not None:
            yield "", number
            return
