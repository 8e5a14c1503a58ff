"""Audits of live answers: what this replica has counted, and what all together say of promises."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import nan
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serve.audits.counts import DEGRADED, REQUEST
from serve.audits.quality import PolicyQuality, ProfileQuality, PromiseQuality
from serve.classifier.catalog import Catalog
from serve.classifier.classifier import Classifier

_OUTCOMES: Final = ("agree", "differ", "skipped")
_GAUGES: Final = {
    "disagreement": (
        "Share of audited answers of all replicas that differ from full depth's, and bounds of the "
        "true share.",
        ["profile", "bound"],
    ),
    "promise": ("What is promised to be lost at most.", ["profile", "loss"]),
    "promise_evidence": (
        "log10 of the evidence, of all replicas' audits, that more is lost than is promised.",
        ["profile", "loss"],
    ),
    "promise_broken": ("1 while the evidence is enough for an alarm.", ["profile", "loss"]),
    "policy_by_guardrail": ("1 while the live policy is one that the guardrail has made.", []),
}


class AuditCollector(Collector):
    """Reads the counts of this replica, and the last ones of all; no scrape waits for a store."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def collect(self) -> Iterator[Metric]:
        """Yield the counter and the gauges of every model."""
        audits = CounterMetricFamily(
            "offramp_audits",
            "Drawn answers of this replica by what their audit has found.",
            labels=["model", "profile", "outcome"],
        )
        gauges = {
            name: GaugeMetricFamily(f"offramp_{name}", text, labels=["model", *labels])
            for name, (text, labels) in _GAUGES.items()
        }
        for classifier in self._catalog:
            for (profile, outcome), number in _outcomes(classifier).items():
                audits.add_metric([classifier.name, profile, outcome], number)
            made = float(classifier.policy.current.action == "guardrail")
            gauges["policy_by_guardrail"].add_metric([classifier.name], made)
            for name, labels, value in _judged(classifier.guardrail.latest()):
                gauges[name].add_metric([classifier.name, *labels], value)
        yield audits
        yield from gauges.values()


def _outcomes(classifier: Classifier) -> Mapping[tuple[str, str], int]:
    """Return the audits of this replica by profile and outcome, those that are 0 too."""
    profiles = (*classifier.policy.live.applied.named, REQUEST, DEGRADED)
    found = Counter({(profile, outcome): 0 for profile in profiles for outcome in _OUTCOMES})
    for key, tally in classifier.audits.counts().items():
        if key.rollout:  # the same audits once more, or a candidate's
            continue
        found[key.profile, "agree"] += tally.audited - tally.differ
        found[key.profile, "differ"] += tally.differ
        found[key.profile, "skipped"] += tally.skipped
    return found


def _judged(judged: PolicyQuality) -> Iterator[tuple[str, list[str], float]]:
    """Yield name, labels without the model's, and value of each sample."""
    for key, quality in judged.profiles.items():
        yield from _disagreement(key.profile, quality)
        for promise in quality.promises:
            yield from _promise(key.profile, promise)
    for name in (REQUEST, DEGRADED):
        own = (quality for key, quality in judged.requests.items() if key.profile == name)
        for promise in _worst(own):
            yield from _promise(name, promise)


def _disagreement(profile: str, quality: ProfileQuality) -> Iterator[tuple[str, list[str], float]]:
    low, high = quality.interval
    observed = nan if quality.disagreement is None else quality.disagreement
    for bound, share in (("observed", observed), ("low", low), ("high", high)):
        yield "disagreement", [profile, bound], share


def _promise(profile: str, promise: PromiseQuality) -> Iterator[tuple[str, list[str], float]]:
    labels = [profile, promise.loss]
    yield "promise", labels, promise.epsilon
    if promise.evidence_log10 is not None:
        yield "promise_evidence", labels, promise.evidence_log10
        yield "promise_broken", labels, float(promise.state == "broken")


def _worst(requested: Iterable[ProfileQuality]) -> Iterable[PromiseQuality]:
    """Return of each loss the promise with the most evidence against it."""
    worst: dict[str, PromiseQuality] = {}
    for promise in (each for quality in requested for each in quality.promises):
        if promise.evidence_log10 is not None:
            known = worst.setdefault(promise.loss, promise)
            worst[promise.loss] = max(known, promise, key=lambda each: each.evidence_log10 or 0.0)
    return worst.values()
