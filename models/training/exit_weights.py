"""How much the loss of each exit counts in the loss of all exits (`--exit-weights`)."""

from collections.abc import Callable
from typing import Literal, TypeAlias

ExitWeights = Literal["depth", "sum", "mean", "descending", "shallow-deep"]

# From the number of exits, and the share of the stage's steps that are done, to a weight for each
# exit, first to last. An exit whose weight is 0 does not learn.
Weigh: TypeAlias = Callable[[int, float], list[float]]

# Of the inner exits, where shallow-deep training begins and, for the deepest one, where it ends.
_FIRST, _DEEPEST = 0.01, 0.9


def by_depth(num_exits: int, done: float) -> list[float]:
    """Exit j has j / sum(j): PABEE (Zhou et al. 2020)."""
    total = num_exits * (num_exits + 1) / 2
    return [j / total for j in range(1, num_exits + 1)]


def summed(num_exits: int, done: float) -> list[float]:
    """Every exit has 1."""
    return [1.0] * num_exits


def averaged(num_exits: int, done: float) -> list[float]:
    """Every exit has 1 / exits."""
    return [1 / num_exits] * num_exits


def descending(num_exits: int, done: float) -> list[float]:
    """The weights by depth in reverse, so that the first exit counts most."""
    return by_depth(num_exits, done)[::-1]


def shallow_deep(num_exits: int, done: float) -> list[float]:
    """Inner exits count ever more, the last one 1: Kaya et al. 2019.

    Inner exit i of m has min(t, 0.01 + done * t) with t = 0.9 i / m. For six inner exits t is 0.15,
    0.3, 0.45, 0.6, 0.75 and 0.9, as published.
    """
    inner = num_exits - 1
    ends = [_DEEPEST * i / inner for i in range(1, num_exits)]
    return [*(min(end, _FIRST + done * end) for end in ends), 1.0]


def last_only(num_exits: int, done: float) -> list[float]:
    """The last exit alone learns."""
    return [0.0] * (num_exits - 1) + [1.0]


def all_but_last(num_exits: int, done: float) -> list[float]:
    """The exits before the last learn, each with 1."""
    return [1.0] * (num_exits - 1) + [0.0]


# A further choice is a function, a line here and a name in `ExitWeights`.
EXIT_WEIGHTS: dict[ExitWeights, Weigh] = {
    "depth": by_depth,
    "sum": summed,
    "mean": averaged,
    "descending": descending,
    "shallow-deep": shallow_deep,
}
