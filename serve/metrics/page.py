"""Merges the metrics pages of several replicas into one."""

from collections.abc import Iterator, Mapping

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from serve.metrics.collectors import Counted, replica_gauges


def merge_pages(pages: Mapping[str, str], unreachable: int, counted: Counted) -> bytes:
    """Return one page of Prometheus text, with the replica as a further label of each sample.

    `unreachable` is the number of replicas that gave no page.
    """
    return generate_latest(_Merged(pages, unreachable, counted))


class _Merged(Collector):
    """Each family once, with the samples of every replica."""

    def __init__(self, pages: Mapping[str, str], unreachable: int, counted: Counted) -> None:
        self._pages = pages
        self._unreachable = unreachable
        self._counted = counted

    def collect(self) -> Iterator[Metric]:
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
        yield from replica_gauges(self._counted, len(self._pages), self._unreachable)
