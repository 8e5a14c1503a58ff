"""When requests are due: at a rate of their own, or each after the last answer.

Closed loop: a user sends the next request when the last is answered, so a slow server is asked
less, and what would have waited is never seen. Open loop: requests come when they come, as they
do from many people who know nothing of each other.
"""

import random
from collections.abc import Iterator
from itertools import repeat
from typing import Literal, TypeAlias

# A loop, closed; or the pattern of an open one.
Arrivals: TypeAlias = Literal["closed", "constant", "poisson"]
ARRIVALS: tuple[Arrivals, ...] = ("closed", "constant", "poisson")


def gaps(pattern: Arrivals, per_second: float, draw: random.Random) -> Iterator[float]:
    """Yield seconds between arrivals, forever.

    Args:
        pattern: `constant`, or `poisson` (exponential gaps).
        per_second: the rate, above 0.
        draw: where chance comes from.
    """
    if pattern == "poisson":
        return (draw.expovariate(per_second) for _ in repeat(None))
    return repeat(1 / per_second)


class Timetable:
    """The due times of one stream of arrivals, whatever becomes of the answers.

    Streams that start together would send together: each begins somewhere within its first gap.
    """

    def __init__(
        self, pattern: Arrivals, per_second: float, now_s: float, draw: random.Random
    ) -> None:
        self._gaps = gaps(pattern, per_second, draw)
        self._due_s = now_s + next(self._gaps) * (draw.random() if pattern == "constant" else 1)

    def next(self) -> float:
        """Return when the next request is due, by the clock that `now_s` came from."""
        due_s = self._due_s
        self._due_s += next(self._gaps)
        return due_s
