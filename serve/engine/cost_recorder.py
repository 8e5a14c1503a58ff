"""What segments cost, noted while rows wait and written down when their answers are out."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from serve.engine.cost_model import CostModel
from serve.engine.row import BatchStats

Shares: TypeAlias = Sequence[tuple[int, int, int]]  # (exit index, rows, tokens)


_BATCHES_REMEMBERED = 64
# Of more rows, most of the judging is letting them leave.
_SMALL_BATCH = 8


class SegmentRun(NamedTuple):
    """One run of a segment, or of several with nobody between them.

    Attributes:
        segments: which ones, counted from 0.
        num_rows: rows in the batch.
        num_tokens: real tokens.
        longest: tokens that each row was padded to.
        took_s: time in all of them.
    """

    segments: range
    num_rows: int
    num_tokens: int
    longest: int
    took_s: float


class CostRecorder:
    """Notes of runs, for the cost model and for whoever counts."""

    def __init__(self, costs: CostModel, observe: Callable[[BatchStats], None]) -> None:
        self._costs, self._observe = costs, observe
        self._notes: list[tuple[SegmentRun, float, Shares]] = []
        self._lone_notes: list[tuple[int, int, int, float, float]] = []
        self._batches_judged_s = 0.0  # mean of small batches of several rows; old ones fade

    def note(self, ran: SegmentRun, judge_s: float = 0.0, shares: Shares = ()) -> None:
        """Remember a run.

        Args:
            ran: what ran.
            judge_s: time in judging its rows and letting them leave.
            shares: what of it was in each segment, if that was more than one.
        """
        self._notes.append((ran, judge_s, shares))

    def note_alone(
        self, begin: int, end: int, num_tokens: int, took_s: float, judge_s: float
    ) -> None:
        """Remember a run of a row that is alone, with little effort: its answer is not out yet.

        Args:
            begin: its first segment.
            end: the one behind its last.
            num_tokens: the row's.
            took_s: time in the segments, and what calling them takes.
            judge_s: as for `note`.
        """
        self._lone_notes.append((begin, end, num_tokens, took_s, judge_s))

    def write(self) -> None:
        """Pass on what has been noted."""
        if self._lone_notes:
            lone_notes, self._lone_notes = self._lone_notes, []
            for begin, end, num_tokens, took_s, judge_s in lone_notes:
                ran = SegmentRun(range(begin, end), 1, num_tokens, num_tokens, took_s)
                self._write_segments(ran, judge_s)
        if not self._notes:
            return
        notes, self._notes = self._notes, []
        for ran, judge_s, shares in notes:
            if shares:
                self._write_shares(ran, judge_s, shares)
            else:
                self._write_segments(ran, judge_s)

    def _write_segments(self, ran: SegmentRun, judge_s: float) -> None:
        """Write down what each segment has cost: of several, its part as far as is known.

        What is known of a segment includes judging. So judging is shared out like the rest: told
        of the last one alone, that one would soon seem to cost everything, and the others nothing.
        """
        segments, num_rows, num_tokens, longest, took_s = ran
        padded, all_s = num_rows * longest, took_s + self._judged_s(num_rows, judge_s)
        for index, part in zip(segments, self._parts(ran), strict=True):
            self._costs.observe(index, num_rows, longest, all_s * part)
            judged_s = judge_s if index == segments[-1] else 0.0
            self._observe(BatchStats(index, num_rows, num_tokens, padded, took_s * part, judged_s))

    def _parts(self, ran: SegmentRun) -> Sequence[float]:
        """Return what part each segment has in the time of the run."""
        segments = ran.segments
        if len(segments) == 1:
            return (1.0,)
        return self._costs.shares(segments.start, segments.stop, ran.num_rows, ran.longest)

    def _judged_s(self, num_rows: int, judge_s: float) -> float:
        """Return what a launch costs beside its segment: what comes out of it must be judged.

        A row that is alone takes less of that than any batch. Told so, the scheduler would think
        that it costs nothing to go on in small batches; so it is told what those take of late.
        """
        if num_rows == 1:
            return max(judge_s, self._batches_judged_s)
        if num_rows <= _SMALL_BATCH:
            self._batches_judged_s += (judge_s - self._batches_judged_s) / _BATCHES_REMEMBERED
        return judge_s

    def _write_shares(self, ran: SegmentRun, judge_s: float, shares: Shares) -> None:
        self._costs.observe(ran.segments.start, ran.num_rows, ran.longest, ran.took_s + judge_s)
        for exit_index, num_rows, num_tokens in shares:
            share = num_rows / ran.num_rows
            padded = num_rows * ran.longest
            times_s = ran.took_s * share, judge_s * share
            self._observe(BatchStats(exit_index, num_rows, num_tokens, padded, *times_s))
