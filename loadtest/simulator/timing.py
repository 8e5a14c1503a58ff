"""How long runs take on a simulated device: by formula, or by points between which lines lie."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from serve.engine.cost_model import SegmentCost, fitted


class Timing(Protocol):
    """Time as a function of rows and tokens; `SegmentCost` is one."""

    def seconds(self, num_rows: int, num_tokens: int) -> float:
        """Return the time of a batch of so many rows, padded to so many tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Curve:
    """Straight lines between points, by all tokens of a batch; the last line goes on.

    Attributes:
        tokens: of each point, ascending; two points at least.
        times_s: of each point. Before the first one the time stays the same.
    """

    tokens: tuple[float, ...]
    times_s: tuple[float, ...]

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> "Curve":
        """Return the curve through (tokens, seconds); of points at one place the slower counts."""
        slowest: dict[float, float] = {}
        for tokens, seconds in sorted(points):
            slowest[tokens] = max(seconds, slowest.get(tokens, 0.0))
        return cls(tuple(slowest), tuple(slowest.values()))

    @classmethod
    def launch_bound(cls, launches_s: float, base_s: float, per_token_s: float) -> "Curve":
        """Return the larger of the time of launches and of the work, which grows with tokens."""
        corner = (launches_s - base_s) / per_token_s
        return cls((corner, 2 * corner), (launches_s, launches_s + corner * per_token_s))

    def seconds(self, num_rows: int, num_tokens: int) -> float:
        """Return the time of a batch of so many rows, padded to so many tokens."""
        at = num_rows * num_tokens
        if at <= self.tokens[0]:
            return self.times_s[0]
        i = min(bisect_right(self.tokens, at), len(self.tokens) - 1) - 1
        (left, right), (low, high) = self.tokens[i : i + 2], self.times_s[i : i + 2]
        return low + (high - low) * (at - left) / (right - left)


def learned(seconds: Callable[[int, int], float], shapes: Sequence[tuple[int, int]]) -> SegmentCost:
    """Return what the engine's warm-up would make of a device that takes so long."""
    return fitted([(rows, tokens, seconds(rows, tokens)) for rows, tokens in shapes])
