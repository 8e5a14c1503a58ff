"""Merges the metrics pages of several replicas into one."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from serve.metrics.collectors import replica_gauges


def merge_pages(pages: Mapping[str, str], unreachable: int) -> bytes:
    """Return one page, with the replica as a further label of each sample.

    Args:
        pages: Prometheus text by replica.
        unreachable: number of replicas that gave none.
    """
    registry = CollectorRegistry()
    registry.register(_Merged(pages, unreachable))
    return generate_latest(registry)


class _Merged(Collector):
    def __init__(self, pages: Mapping[str, str], unreachable: int) -> None:
        self._pages = pages
        self._unreachable = unreachable

    def describe(self) -> Iterable[Metric]:
        """Declare nothing: registering must not read the pages."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield each family once, with the samples of every replica."""
        merged: dict[str, Metric] = {}
        for replica, page in self._pages.items():
            for family in text_string_to_metric_families(page):
                known = merged.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    labels = {**sample.labels, "replica": replica}
                    known.add_sample(sample.name, labels, sample.value)
        yield from merged.values()
        yield from replica_gauges(len(self._pages), self._unreachable)
