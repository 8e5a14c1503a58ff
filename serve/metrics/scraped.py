"""What is read of models and connections at every scrape; no scrape waits for a store."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import nan
from typing import Final, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serve.access.held_bytes import HeldBytes
from serve.audits.counts import DEGRADED, REQUEST
from serve.audits.quality import PolicyQuality, ProfileQuality, PromiseQuality
from serve.classifier.catalog import Catalog
from serve.classifier.classifier import Classifier
from serve.http.settings import Closed, ConnectionState
from serve.metrics.names import Declared
from serve.rules import ExitRule

# Name, values of the labels, and value.
Sample: TypeAlias = tuple[str, list[str], float]


class FamilyCollector(Collector):
    """Publishes samples that a function returns when it is asked."""

    def __init__(
        self, declared: Mapping[str, Declared], read: Callable[[], Iterable[Sample]]
    ) -> None:
        """Take the families, and what reads the samples of all of them."""
        self._declared, self._read = declared, read

    def collect(self) -> Iterator[Metric]:
        """Yield every family, also one without a sample."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for name, declared in self._declared.items():
            made = CounterMetricFamily if declared.counts else GaugeMetricFamily
            families[name] = made(f"offramp_{name}", declared.text, labels=declared.labels)
        for name, labels, value in self._read():
            families[name].add_metric(labels, value)
        yield from families.values()


_ARMS: Final = ("live", "candidate")
_OUTCOMES: Final = ("agree", "differ", "skipped")


def model_samples(catalog: Catalog, node: str) -> Iterator[Sample]:
    """Yield the samples of all models; `node` is the Ray cluster's, empty without Ray."""
    for classifier in catalog:
        model = [classifier.name]
        for read in (_engine, _policy, _rollout, _audits, _quality):
            for name, labels, value in read(classifier):
                yield name, model + labels, value
        yield "model_info", model + _placement(classifier) + [node], 1
    for alias, name in catalog.aliases.items():
        yield "alias_info", [alias, name], 1
    yield "models_unfollowed", [], float(catalog.unfollowed is not None)
    yield "policy_config_refused", [], float(catalog.config_problem is not None)


# Labels are yielded without the model's from here on.


def _engine(classifier: Classifier) -> Iterator[Sample]:
    backlogs = [engine.backlog for engine in classifier.engines]
    live = classifier.policy.live
    yield "queue_depth", [], sum(each.rows for each in backlogs)
    yield "queue_tokens", [], sum(each.tokens for each in backlogs)
    yield "queue_seconds", [], sum(each.seconds for each in backlogs)
    yield "batches_retried", [], sum(engine.num_retried for engine in classifier.engines)
    yield "engine_up", [], float(classifier.alive)
    arms = (live.applied, live.candidate.applied) if live.candidate else (live.applied,)
    levels = [classifier.degrading.level(each.faster) for each in arms if each.faster]
    yield "overload_level", [], max(levels, default=0)
    for cause, number in classifier.degrading.counted.items():
        yield "degraded_answers", [cause], number
    if cache := classifier.cache:
        yield "answer_cache_bytes", [], cache.num_bytes
        for outcome, number in cache.counted.items():
            yield "answer_cache_rows", [outcome], number


def _policy(classifier: Classifier) -> Iterator[Sample]:
    entry, applied, *_ = classifier.policy.live
    yield "policy_version", [], entry.version
    yield "policy_problems", [], len(applied.problems)
    yield "policy_by_guardrail", [], float(entry.action == "guardrail")
    for profile, chosen in applied.named.items():
        rule = chosen.rule.rule
        for layer, number in _numbers_in(rule, classifier.bundle.manifest.exit_layers):
            yield "threshold", [profile, rule.rule, layer], number


def _numbers_in(rule: ExitRule, exits: tuple[int, ...]) -> Iterator[tuple[str, float]]:
    """Yield exit layer and number of the setting that decides how early rows leave.

    The layer is empty, which to Prometheus is no label, where one number is for all exits; 0 is the
    table's, and `small` the small model's. Thresholds of single labels are not published.
    """
    if rule.table is not None:
        yield "0", rule.table
    if rule.small is not None:
        yield "small", rule.small.threshold
    for name in ("threshold", "votes", "share", "patience", "layer"):
        number = getattr(rule, name, None)
        if isinstance(number, tuple):
            yield from zip(map(str, exits), number, strict=True)
            return
        if number is not None:
            yield "", number
            return


def _placement(classifier: Classifier) -> list[str]:
    manifest = classifier.bundle.manifest
    shape = [str(manifest.num_layers), manifest.task]
    return [classifier.device, classifier.precision, *shape, classifier.bundle.version]


def _rollout(classifier: Classifier) -> Iterator[Sample]:
    entry = classifier.policy.current
    yield "rollout_percent", [], entry.running.percent if entry.running else 0.0
    yield "rollout_failed", [], float(entry.action == "failed")
    answered = Counter(dict.fromkeys(_ARMS, 0))
    for key, tally in classifier.audits.counts().items():
        if key.rollout and tally.traffic:
            answered[key.profile] += sum(tally.traffic.exits.values())
    for arm in _ARMS:
        yield "rollout_answers", [arm], answered[arm]


def _audits(classifier: Classifier) -> Iterator[Sample]:
    """Yield the audits of this replica by profile and outcome, those that are 0 too."""
    profiles = (*classifier.policy.live.applied.named, REQUEST, DEGRADED)
    found = Counter({(profile, outcome): 0 for profile in profiles for outcome in _OUTCOMES})
    for key, tally in classifier.audits.counts().items():
        if key.rollout:  # the same audits once more, or a candidate's
            continue
        found[key.profile, "agree"] += tally.audited - tally.differ
        found[key.profile, "differ"] += tally.differ
        found[key.profile, "skipped"] += tally.skipped
    for (profile, outcome), number in found.items():
        yield "audits", [profile, outcome], number


def _quality(classifier: Classifier) -> Iterator[Sample]:
    """Yield what the audits of all replicas said when they were read last."""
    judged: PolicyQuality = classifier.guardrail.latest()
    for key, quality in judged.profiles.items():
        observed = nan if quality.disagreement is None else quality.disagreement
        low, high = quality.interval
        for bound, share in (("observed", observed), ("low", low), ("high", high)):
            yield "disagreement", [key.profile, bound], share
        for promise in quality.promises:
            yield from _promise(key.profile, promise)
    for name in (REQUEST, DEGRADED):
        own = (quality for key, quality in judged.requests.items() if key.profile == name)
        for promise in _worst(own):
            yield from _promise(name, promise)


def _promise(profile: str, promise: PromiseQuality) -> Iterator[Sample]:
    labels = [profile, promise.loss]
    yield "promise", labels, promise.epsilon
    if promise.evidence_log10 is not None:
        yield "promise_evidence", labels, promise.evidence_log10
        yield "promise_broken", labels, float(promise.state == "broken")


def _worst(requested: Iterable[ProfileQuality]) -> Iterable[PromiseQuality]:
    """Return of each loss the promise with the most evidence against it."""
    promises = [each for quality in requested for each in quality.promises]
    known = [each for each in promises if each.evidence_log10 is not None]
    known.sort(key=lambda each: each.evidence_log10 or 0.0)
    return {each.loss: each for each in known}.values()


def connection_samples(state: ConnectionState, answers: Sequence[HeldBytes]) -> Iterator[Sample]:
    """Yield the samples of the connections, and of the answers that they carry."""
    yield "connections", [], state.num_open
    yield "unsent_bytes", [], sum(each.num_bytes for each in answers)
    for reason in Closed:
        yield "connections_closed", [reason], state.closed[reason]
    # The client did not take its answer, which made room for others.
    yield "connections_closed", ["unread"], sum(each.num_given_up for each in answers)
