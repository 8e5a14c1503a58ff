"""One turn of the engine: choose, run, judge, retire, compact. No threads."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from serve.cost import CostModel
from serve.errors import Cancelled, DeadlineExceeded, ModelFailure, OfframpError
from serve.judge import Reason
from serve.leaving import farewells
from serve.memory import out_of_memory
from serve.merging import merge
from serve.row import Answer, Outcome, Row, WaveStats
from serve.runner import AnyRunner, mixes_depths
from serve.scheduler import Scheduler, WaveLimits
from serve.steps import ModelShape, steps_of
from serve.wave import Wave

__all__ = ["EngineCore", "ModelShape"]

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 0.005
_REASONS = tuple(Reason)
_STAYS = int(Reason.STAYS)  # numpy is five times as slow at comparing with an enum's member


@dataclass(slots=True)
class _Ran:
    """A segment run: the wave that came out of it, what it cost, and the rows that entered."""

    wave: Wave
    num_rows: int
    num_tokens: int
    longest: int
    segment_s: float


class EngineCore:
    """Rows in flight, advanced one segment at a time by a single caller.

    Attributes:
        costs: what segments cost; kept fresh here.
        exit_depths: how many segments a row has been through at each exit.
    """

    def __init__(
        self,
        runner: AnyRunner,
        shape: ModelShape,
        limits: WaveLimits,
        clock: Callable[[], float],
        observe: Callable[[WaveStats], None],
    ) -> None:
        """Start empty.

        Args:
            runner: the segments.
            shape: the model's exits.
            limits: bounds on waves.
            clock: monotonic seconds, on which rows are admitted and late.
            observe: gets figures of each segment run.
        """
        self._runner = runner
        self._shape = shape
        self._clock = clock
        self._observe = observe
        self.costs = shape.costs or CostModel(len(runner), mixes_depths(runner))
        self._steps = steps_of(runner, shape)
        self._shared = mixes_depths(runner)
        self.exit_depths = shape.exits if self._shared else tuple(range(1, len(runner) + 1))
        self._scheduler = Scheduler(len(runner), limits, self.costs, self._shared)
        self._swept_s = clock()

    def __bool__(self) -> bool:
        return bool(self._scheduler)

    def add(self, rows: Iterable[Row]) -> None:
        """Take in admitted rows."""
        self._scheduler.add(rows)

    def turn(self) -> list[Outcome]:
        """Run one segment on one wave and return the outcomes it brought.

        A segment that fails gives its wave's rows an error each, and harms no other row.
        """
        now = self._clock()
        outcomes = self._sweep(now)
        if not self._scheduler:
            return outcomes
        waves = self._scheduler.next_waves(now)
        for wave in waves:
            if wave.depth or wave.hidden is not None:
                outcomes += self._drop_late(wave, now)
            else:
                self._begin(wave, now)
        waves = [wave for wave in waves if wave.rows]
        return outcomes + self._advance(waves, may_split=True) if waves else outcomes

    def _sweep(self, now: float) -> list[Outcome]:
        """Refuse waiting rows that nobody waits for, or that are too late to start."""
        if now < self._swept_s + SWEEP_EVERY_S:
            return []
        self._swept_s = now
        gone = self._scheduler.remove_waiting(lambda row: row.cancelled or row.deadline_s <= now)
        return [Outcome(row, _refusal(row)) for row in gone]

    def _begin(self, wave: Wave, now: float) -> None:
        wave.prepare(self._shape.traits, self._shared)
        for row in wave.rows:
            row.started_s = now

    def _drop_late(self, wave: Wave, now: float) -> list[Outcome]:
        """Drop cancelled rows; let late ones leave with the best answer they have so far."""
        # Read once: another thread may set it at any moment.
        gone = [row.cancelled for row in wave.rows]
        dropped: list[Outcome] = []
        if True in gone:
            dropped = [
                Outcome(row, _client_left())
                for row, left in zip(wave.rows, gone, strict=True)
                if left
            ]
            wave.compact(~np.array(gone, np.bool_))
        if wave.deadline_s > now:
            return dropped
        late = np.array([row.deadline_s <= now for row in wave.rows], np.bool_)
        return dropped + self._retire(wave, np.where(late, Reason.DEADLINE, Reason.STAYS))

    def _advance(self, waves: list[Wave], may_split: bool) -> list[Outcome]:
        try:
            ran = self._run(waves)
        except Exception as error:
            parts = self._smaller(waves) if may_split and out_of_memory(error) else []
            if len(parts) > 1:
                log.warning("out of memory at depth %d: trying again in parts", waves[0].depth)
                return [o for part in parts for o in self._advance([part], may_split=False)]
            log.exception("a segment failed at depth %d", waves[0].depth)
            failure = ModelFailure("the model failed on this input; the server's log has the cause")
            return [Outcome(row, failure) for wave in waves for row in wave.rows]
        return self._settle(ran)

    @staticmethod
    def _smaller(waves: list[Wave]) -> list[Wave]:
        """Return the rows as waves of at most half the size, not joined."""
        most = (sum(len(wave.rows) for wave in waves) + 1) // 2
        halved = [wave.halves() if len(wave.rows) > most else (wave,) for wave in waves]
        return [part for parts in halved for part in parts]

    def _run(self, waves: list[Wave]) -> _Ran:
        began = perf_counter()
        for wave in waves:
            self._steps.enter(wave)
        wave = merge(waves, self._runner)
        joined = perf_counter()
        if len(waves) > 1:
            self.costs.observe_join(len(wave.rows), wave.longest, joined - began)
        figures = len(wave.rows), wave.num_tokens, wave.longest
        self._steps.advance(wave)
        return _Ran(wave, *figures, perf_counter() - joined)

    def _settle(self, ran: _Ran) -> list[Outcome]:
        """Judge the rows after a segment, and let those leave that may."""
        wave = ran.wave
        judging = perf_counter()
        shares = self._steps.shares(wave)
        outcomes = self._retire(wave, self._steps.judge(wave))
        self._scheduler.put_back(wave)
        judge_s = perf_counter() - judging
        # What a launch costs includes what it costs to judge what comes out of it.
        self.costs.observe(wave.depth - 1, ran.num_rows, ran.longest, ran.segment_s + judge_s)
        if shares:
            self._report_shares(ran, shares, judge_s)
        else:
            rows, tokens, padded = ran.num_rows, ran.num_tokens, ran.num_rows * ran.longest
            self._observe(WaveStats(wave.depth - 1, rows, tokens, padded, ran.segment_s, judge_s))
        return outcomes

    def _report_shares(self, ran: _Ran, shares: list[tuple[int, int, int]], judge_s: float) -> None:
        for exit_index, num_rows, num_tokens in shares:
            share = num_rows / ran.num_rows
            padded = num_rows * ran.longest
            times_s = ran.segment_s * share, judge_s * share
            self._observe(WaveStats(exit_index, num_rows, num_tokens, padded, *times_s))

    def _retire(self, wave: Wave, reasons: NDArray[np.int8]) -> list[Outcome]:
        """Answer the rows that have a reason to leave, and keep the rest."""
        leaving = reasons.nonzero()[0]
        if not len(leaving):
            return []
        now = self._clock()
        figures = zip(
            leaving.tolist(),
            wave.exits_of(leaving),
            reasons[leaving].tolist(),
            wave.signals[leaving].tolist(),
            farewells(wave, leaving, self._shape.traits.task),
            strict=True,
        )
        outcomes = []
        for i, index, reason, signal, (logits, head, label, broken) in figures:
            row = wave.rows[i]
            result: Answer | OfframpError
            if index < 0:
                result = DeadlineExceeded()
            elif broken:
                layer = self._shape.exits[head]
                result = ModelFailure(f"the model gave no number at layer {layer}")
            else:
                queue_s, compute_s = row.started_s - row.admitted_s, now - row.started_s
                trail = () if row.trail is None else row.trail
                result = Answer(
                    logits, index, _REASONS[reason], signal, queue_s, compute_s, head, label, trail
                )
            outcomes.append(Outcome(row, result))
        wave.compact(reasons == _STAYS)
        return outcomes


def _refusal(row: Row) -> OfframpError:
    if row.cancelled:
        return _client_left()
    return DeadlineExceeded()


def _client_left() -> OfframpError:
    return Cancelled("the client has left")
