"""Rollouts: their share, how the last one ended, and what this replica has answered in each arm."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serve.classifier.catalog import Catalog
from serve.classifier.classifier import Classifier

_ARMS: Final = ("live", "candidate")


class RolloutCollector(Collector):
    """Reads what is live and the counts of this replica; no scrape waits for a store."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges and the counter of every model."""
        percent = GaugeMetricFamily(
            "offramp_rollout_percent",
            "Requests that follow the candidate of a rollout, in percent; 0 without one.",
            labels=["model"],
        )
        failed = GaugeMetricFamily(
            "offramp_rollout_failed",
            "1 while the live policy is the one that a failed rollout has gone back to.",
            labels=["model"],
        )
        answers = CounterMetricFamily(
            "offramp_rollout_answers",
            "Texts that this replica has answered while rollouts ran, by arm.",
            labels=["model", "arm"],
        )
        for classifier in self._catalog:
            entry = classifier.policy.current
            percent.add_metric([classifier.name], entry.running.percent if entry.running else 0.0)
            failed.add_metric([classifier.name], float(entry.action == "failed"))
            answered = _answered(classifier)
            for arm in _ARMS:
                answers.add_metric([classifier.name, arm], answered[arm])
        yield from (percent, failed, answers)


def _answered(classifier: Classifier) -> Counter[str]:
    found = Counter[str]()
    for key, tally in classifier.audits.counts().items():
        if key.rollout and tally.traffic:
            found[key.profile] += sum(tally.traffic.exits.values())
    return found
