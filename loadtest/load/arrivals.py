"""When requests are due in an open loop.

In a closed loop a user sends the next request when the last is answered, so a slow server gets
fewer requests, and the waiting that it would cause is not seen. In an open loop requests are due
at a rate of their own, as those of many independent clients are.
"""

import random
from collections.abc import Iterator
from typing import Literal, TypeAlias

Arrivals: TypeAlias = Literal["closed", "constant", "poisson"]
ARRIVALS: tuple[Arrivals, ...] = ("closed", "constant", "poisson")


def due_times(
    pattern: Arrivals, per_second: float, start_s: float, draw: random.Random
) -> Iterator[float]:
    """Yield the due times of one stream of requests, forever.

    Args:
        pattern: `constant`, or `poisson` (exponential gaps).
        per_second: the rate, above 0.
        start_s: the stream begins within the first gap after this.
        draw: random source; a constant stream too begins at a random moment of its first gap.
    """
    gap_s = 1 / per_second
    due_s = start_s + gap_s * draw.random() if pattern == "constant" else start_s
    while True:
        if pattern == "poisson":
            due_s += draw.expovariate(per_second)
        yield due_s
        if pattern == "constant":
            due_s += gap_s
