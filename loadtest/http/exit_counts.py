"""Count where texts left, from the answers."""

from collections import Counter
from typing import Any, NamedTuple, TypeAlias


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
