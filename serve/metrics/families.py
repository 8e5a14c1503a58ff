"""Families of metrics whose samples are read at every scrape."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serve.metrics.names import Declared

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
