"""One metrics page out of several replicas' pages."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector


def merge_pages(pages: Mapping[str, str], unreachable: int) -> bytes:
    """Return the pages as one, each sample with its replica as a label.

    Every family is declared once, and sums over replicas are exact, since all use the same
    buckets.

    Args:
        pages: Prometheus text by replica.
        unreachable: replicas that gave none.
    """
    registry = CollectorRegistry()
    registry.register(_Merged(pages, unreachable))
    return generate_latest(registry)


class _Merged(Collector):
    def __init__(self, pages: Mapping[str, str], unreachable: int) -> None:
        self._pages = pages
        self._unreachable = unreachable

    def describe(self) -> Iterable[Metric]:
        """Declare nothing, so that registering does not read the pages."""
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
        yield GaugeMetricFamily(
            "offramp_replicas_scraped", "Replicas on this page.", len(self._pages)
        )
        yield GaugeMetricFamily(
            "offramp_replicas_unreachable",
            "Replicas that gave no metrics in time.",
            self._unreachable,
        )
