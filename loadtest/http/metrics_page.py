"""Read a server's /metrics page, with the counts of all replicas added up."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from loadtest.http.exit_counts import Exit, ExitCounts

Labels: TypeAlias = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Spread:
    """A histogram's content; quantiles are estimated within buckets, NaN without observations."""

    count: float
    mean: float
    p50: float
    p99: float


@dataclass(frozen=True)
class MetricsPage:
    """Counters and histograms of one page, by name and labels without `replica`."""

    values: Mapping[tuple[str, Labels], float]

    @classmethod
    def of(cls, page: str) -> Self:
        """Read a page in Prometheus' text format."""
        values: dict[tuple[str, Labels], float] = defaultdict(float)
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                labels = frozenset((k, v) for k, v in sample.labels.items() if k != "replica")
                values[sample.name, labels] += sample.value
        return cls(dict(values))

    def since(self, before: Self) -> Self:
        """Return how much every value has grown; a replica that has gone takes its counts along."""
        grown = {key: value - before.values.get(key, 0.0) for key, value in self.values.items()}
        return type(self)(grown)

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of all samples of this name that have these labels."""
        return sum(value for _, value in self._matching(name, labels))

    def by(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Return the samples of this name added up by one label's value."""
        sums: dict[str, float] = defaultdict(float)
        for found, value in self._matching(name, labels):
            sums[found.get(label, "")] += value
        return dict(sums)

    def exits(self) -> ExitCounts:
        """Return what `offramp_exits_total` counts."""
        counts: ExitCounts = Counter()
        for found, value in self._matching("offramp_exits_total", {}):
            counts[Exit(found["model"], int(found["layer"]), found["reason"])] += int(value)
        return +counts

    def spread(self, name: str, **labels: str) -> Spread:
        """Return the content of the histogram of this name."""
        buckets: dict[float, float] = defaultdict(float)
        for found, value in self._matching(f"{name}_bucket", labels):
            buckets[float(found["le"])] += value
        count = self.total(f"{name}_count", **labels)
        mean = self.total(f"{name}_sum", **labels) / count if count else float("nan")
        return Spread(count, mean, _quantile(buckets, 0.5), _quantile(buckets, 0.99))

    def _matching(
        self, name: str, labels: Mapping[str, str]
    ) -> Iterable[tuple[dict[str, str], float]]:
        wanted = set(labels.items())
        for (found_name, found), value in self.values.items():
            if found_name == name and wanted <= found:
                yield dict(found), value


def _quantile(buckets: Mapping[float, float], share: float) -> float:
    """Return a quantile of cumulative buckets, as Prometheus' histogram_quantile does."""
    bounds = sorted(buckets)
    if not bounds or not buckets[bounds[-1]] > 0:
        return float("nan")
    wanted = share * buckets[bounds[-1]]
    below, lower = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= wanted:
            if bound == float("inf"):
                return lower
            within = buckets[bound] - below
            return lower + (bound - lower) * ((wanted - below) / within if within else 1.0)
        below, lower = buckets[bound], bound
    return lower
