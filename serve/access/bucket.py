"""A token bucket that may go into debt."""

import math
from typing import Final

# A client that has taken nothing for this long may take what the rate brings in it at once.
BURST_S: Final = 1.0


class Bucket:
    """What one client may still take of one thing. It begins full.

    A request passes while anything is left, even if it takes more than that. So a request that is
    larger than the bucket passes, and the next ones wait until the debt is paid.
    """

    __slots__ = ("_at_s", "_left")

    def __init__(self) -> None:
        self._left, self._at_s = math.inf, 0.0

    def left(self, now_s: float, per_s: float, burst: float) -> float:
        """Return what is left at a time, with a rate and what the bucket holds; 0 or less: wait."""
        self._left = min(burst, self._left + (now_s - self._at_s) * per_s)
        self._at_s = now_s
        return self._left

    def take(self, amount: float) -> None:
        """Take something, after a look at what is left."""
        self._left -= amount
