"""How much must be given up, by the time that the queue takes: with hysteresis."""

import math
from typing import Final

# A queue above the bound raises the level at most so often: what was given up must show first.
RISE_EVERY_S: Final = 0.05
# A queue that is below this share of the bound, and stays so for as long, lowers it by one.
CALM_SHARE: Final = 0.5
CALM_S: Final = 2.0


class LoadLevel:
    """A number that goes up while the queue is long, and down, slower, once it is short.

    It is a function of what it was shown alone. Nothing need be shown while no request comes: the
    queue only gets shorter then.

    Attributes:
        level: how far to go, from 0.
    """

    def __init__(self) -> None:
        """Start with an empty queue."""
        self.level = 0
        self._risen_s = -math.inf
        self._calm_s = -math.inf  # since when the queue is short, or when it will be by itself

    def show(self, queue_s: float, bound_s: float, most: int, now_s: float) -> int:
        """Return the level by the time that the queue takes now.

        Args:
            queue_s: estimated time of the queue.
            bound_s: from where on it is too long.
            most: the highest level.
            now_s: monotonic; never earlier than before.
        """
        self._fall(now_s)
        calm_in_s = queue_s - CALM_SHARE * bound_s
        self._calm_s = now_s + calm_in_s if calm_in_s > 0 else min(self._calm_s, now_s)
        if queue_s > bound_s and now_s >= self._risen_s + RISE_EVERY_S:
            self._risen_s = now_s
            self.level += 1
        self.level = min(self.level, most)
        return self.level

    def _fall(self, now_s: float) -> None:
        """Go down by one for each stretch of calm until now."""
        if not self.level or now_s < self._calm_s + CALM_S:
            return
        steps = min(self.level, int((now_s - self._calm_s) // CALM_S))
        self.level -= steps
        self._calm_s += steps * CALM_S
