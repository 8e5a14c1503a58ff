"""Which rows run next: bookkeeping only, without clock, threads or ONNX Runtime.

New rows enter at depth 0 while others are deeper, so nobody waits for a batch to finish;
waves that meet at one depth are joined. How often a wave may be overtaken is bounded, so no
row starves; among equals the first to come is the first to go.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from serve.row import Row
from serve.wave import Wave


@dataclass(frozen=True, slots=True)
class WaveLimits:
    """How large a wave may grow and how long one may be held back.

    Attributes:
        max_rows: rows in a wave.
        max_tokens: rows times the longest row, so that one wave's segment stays short.
        max_stretch: longest row over shortest row in a fresh wave; bounds padding.
        max_overtakes: runs of other rows that a wave in flight waits for at most.
    """

    max_rows: int = 64
    max_tokens: int = 2048
    max_stretch: float = 1.5
    max_overtakes: int = 2


@dataclass(slots=True)
class Scheduler:
    """Rows waiting at depth 0 and waves in flight.

    Attributes:
        exits: the model's exit layers, ascending.
        limits: bounds on waves.
    """

    exits: tuple[int, ...]
    limits: WaveLimits = WaveLimits()
    _waiting: deque[Row] = field(default_factory=deque)
    _flying: list[Wave] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._waiting or self._flying)

    @property
    def num_waiting(self) -> int:
        """Rows that no segment has seen yet."""
        return len(self._waiting)

    def add(self, rows: Iterable[Row]) -> None:
        """Take in new rows, in order."""
        self._waiting.extend(rows)

    def put_back(self, wave: Wave) -> None:
        """Take back a wave after a segment, one deeper; an empty one is dropped."""
        if wave.rows:
            wave.overtaken = 0
            self._flying.append(wave)

    def remove_waiting(self, gone: Callable[[Row], bool]) -> list[Row]:
        """Give up the rows that no segment has seen yet and that are `gone`."""
        removed: list[Row] = []
        kept: deque[Row] = deque()
        # Asked once per row: a row may be cancelled by another thread at any moment.
        for row in self._waiting:
            (removed if gone(row) else kept).append(row)
        self._waiting = kept
        return removed

    def next_waves(self) -> list[Wave]:
        """Return the waves, all at one depth, to be joined and run next.

        A wave that has been overtaken often enough goes first; then new rows; then the
        shallowest wave, which so catches up with those ahead of it.
        """
        held = [wave for wave in self._flying if wave.overtaken >= self.limits.max_overtakes]
        if held:
            chosen = self._with_company(held[0])
        elif self._waiting:
            chosen = [self._fresh_wave()]
        else:
            chosen = self._with_company(min(self._flying, key=lambda wave: wave.depth))
        self._flying = [wave for wave in self._flying if wave not in chosen]
        for wave in self._flying:
            wave.overtaken += 1
        return chosen

    def _with_company(self, wave: Wave) -> list[Wave]:
        """Return the wave with others at its depth that fit beside it."""
        company = [wave]
        for other in self._flying:
            meets = other is not wave and other.depth == wave.depth
            if meets and self._fits([*company, other]):
                company.append(other)
        return company

    def _fits(self, waves: list[Wave]) -> bool:
        rows = sum(len(wave.rows) for wave in waves)
        padded = rows * max(wave.longest for wave in waves)
        wasted = padded - sum(wave.padded_tokens for wave in waves)
        within = rows <= self.limits.max_rows and padded <= self.limits.max_tokens
        return within and wasted * 4 <= padded

    def _fresh_wave(self) -> Wave:
        """Take the oldest waiting row and those like it in length, oldest first."""
        taken: list[Row] = []
        passed: list[Row] = []
        while self._waiting and len(taken) < self.limits.max_rows > len(passed):
            row = self._waiting.popleft()
            (taken if self._joins(row, taken) else passed).append(row)
        self._waiting.extendleft(reversed(passed))
        return Wave.of(taken, self.exits)

    def _joins(self, row: Row, taken: list[Row]) -> bool:
        lengths = [row.num_tokens, *(mate.num_tokens for mate in taken)]
        shortest, longest = min(lengths), max(lengths)
        alike = longest <= shortest * self.limits.max_stretch
        return not taken or (alike and len(lengths) * longest <= self.limits.max_tokens)
