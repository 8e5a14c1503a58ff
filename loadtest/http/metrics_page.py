"""Read a server's /metrics page: the counts of all replicas, and how much they grow."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeAlias

from prometheus_client.parser import text_string_to_metric_families

Labels: TypeAlias = frozenset[tuple[str, str]]


class Exit(NamedTuple):
    """One way of leaving."""

    model: str
    layer: int
    reason: str


ExitCounts: TypeAlias = Counter[Exit]


def exits_in_reply(reply: dict[str, Any]) -> ExitCounts:
    """Count the exits in the reply to one request, which may have several texts."""
    exits = (result["exit"] for result in reply["results"])
    return Counter(Exit(reply["model"], out["layer"], out["reason"]) for out in exits)


def mean_layer(counts: ExitCounts) -> float:
    """Return the mean exit layer; NaN without exits."""
    total = counts.total()
    return sum(out.layer * n for out, n in counts.items()) / total if total else float("nan")


@dataclass(frozen=True)
class Spread:
    """A histogram's content; quantiles are estimated within buckets, NaN without observations."""

    count: float
    mean: float
    p50: float
    p99: float


@dataclass(frozen=True)
class MetricsPage:
    """Counters and histograms of one page, by name and labels."""

    values: Mapping[tuple[str, Labels], float]
    counters: frozenset[str] = frozenset()  # names of values that fall only where one begins anew

    @classmethod
    def of(cls, page: str) -> Self:
        """Read a page in Prometheus' text format."""
        values: dict[tuple[str, Labels], float] = defaultdict(float)
        counters: set[str] = set()
        for family in text_string_to_metric_families(page):
            if family.type in ("counter", "histogram"):
                counters.update(sample.name for sample in family.samples)
            for sample in family.samples:
                values[sample.name, frozenset(sample.labels.items())] += sample.value
        return cls(dict(values), frozenset(counters))

    @property
    def replicas(self) -> frozenset[str]:
        """The replicas that are on the page."""
        pairs = (pair for _, labels in self.values for pair in labels)
        return frozenset(value for name, value in pairs if name == "replica")

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


class Growth:
    """How much counters have grown over several pages, as Prometheus' increase() counts it.

    A counter that is smaller than before began anew. A replica that is on no later page keeps what
    it had counted by its last one.
    """

    def __init__(self, first: MetricsPage) -> None:
        self._last = dict(first.values)
        self._grown: dict[tuple[str, Labels], float] = dict.fromkeys(first.values, 0.0)
        self._replicas, self._present = first.replicas, first.replicas
        self._anew: set[str] = set()

    def add(self, page: MetricsPage) -> None:
        """Take in a later page."""
        for key, value in page.values.items():
            before = self._last.get(key, 0.0)
            if value < before and key[0] in page.counters:
                self._anew.add(dict(key[1]).get("replica", ""))
                before = 0.0
            self._grown[key] = self._grown.get(key, 0.0) + value - before
            self._last[key] = value
        self._replicas, self._present = self._replicas | page.replicas, page.replicas

    @property
    def grown(self) -> MetricsPage:
        """What was counted."""
        return MetricsPage(self._grown)

    @property
    def ended(self) -> frozenset[str]:
        """Replicas that ended on the way; what they counted last is not known."""
        return (self._replicas - self._present) | self._anew


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
