"""Where texts left, counted twice: from the answers, and by the server's own counters."""

from collections import Counter
from typing import Any, NamedTuple, TypeAlias

from prometheus_client.parser import text_string_to_metric_families


class Exit(NamedTuple):
    """One way of leaving."""

    model: str
    layer: int
    reason: str


ExitCounts: TypeAlias = Counter[Exit]


def exits_in_reply(reply: dict[str, Any]) -> ExitCounts:
    """Count the exits in the reply to one request, however many texts it had."""
    leaving = (result["exit"] for result in reply["results"])
    return Counter(Exit(reply["model"], out["layer"], out["reason"]) for out in leaving)


def exits_in_metrics(exposition: str) -> ExitCounts:
    """Add up `offramp_exits_total` over all replicas of a /metrics page."""
    counts: ExitCounts = Counter()
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name == "offramp_exits_total":
                labels = sample.labels
                out = Exit(labels["model"], int(labels["layer"]), labels["reason"])
                counts[out] += int(sample.value)
    return counts


def mean_layer(counts: ExitCounts) -> float:
    """Return the mean exit layer; NaN without exits."""
    total = counts.total()
    return sum(out.layer * n for out, n in counts.items()) / total if total else float("nan")
