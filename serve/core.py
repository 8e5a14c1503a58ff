"""One turn of the engine: choose, run, judge, retire, compact. No threads."""

import logging
import math
from collections.abc import Callable, Iterable
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from serve.books import Books, Ran
from serve.cost import CostModel
from serve.errors import Cancelled, DeadlineExceeded, ModelFailure, OfframpError
from serve.judge import Reason
from serve.leaving import farewells
from serve.memory import out_of_memory
from serve.merging import merge
from serve.row import Answer, Outcome, Row, WaveStats
from serve.runner import AnyRunner, Gaps, mixes_depths
from serve.scheduler import Scheduler, WaveLimits
from serve.steps import ModelShape, steps_of
from serve.wave import Wave, places

__all__ = ["EngineCore", "ModelShape"]

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 0.005
# Rows may be out of sight for so long, whoever comes meanwhile.
UNDISTURBED_S = 0.02
_REASONS = tuple(Reason)
_STAYS = int(Reason.STAYS)  # numpy is five times as slow at comparing with an enum's member


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
        awaited: Callable[[], bool] = lambda: True,
    ) -> None:
        """Start empty.

        Args:
            runner: the segments.
            shape: the model's exits.
            limits: bounds on waves.
            clock: monotonic seconds, on which rows are admitted and late.
            observe: gets figures of each segment run.
            awaited: whether the caller would do something between this segment and the next.
        """
        self._runner = runner
        self._shape = shape
        self._clock = clock
        self._awaited = awaited
        self.costs = shape.costs or CostModel(len(runner), mixes_depths(runner))
        self._books = Books(self.costs, observe)
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

    def write_books(self) -> None:
        """Pass on what the last turn has cost; the next one does so too, but the caller waits."""
        self._books.write()

    def turn(self) -> list[Outcome]:
        """Run one segment on one wave and return the outcomes it brought.

        Rows that surely stay go on into the next while nobody waits.

        A segment that fails gives its wave's rows an error each, and harms no other row.
        """
        self._books.write()
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
            wave, ran = self._run(waves)
            ran = self._run_on(wave, ran)
        except Exception as error:
            parts = self._smaller(waves) if may_split and out_of_memory(error) else []
            if len(parts) > 1:
                log.warning("out of memory at depth %d: trying again in parts", waves[0].depth)
                return [o for part in parts for o in self._advance([part], may_split=False)]
            log.exception("a segment failed at depth %d", waves[0].depth)
            failure = ModelFailure("the model failed on this input; the server's log has the cause")
            return [Outcome(row, failure) for wave in waves for row in wave.rows]
        return self._settle(wave, ran)

    @staticmethod
    def _smaller(waves: list[Wave]) -> list[Wave]:
        """Return the rows as waves of at most half the size, not joined."""
        most = (sum(len(wave.rows) for wave in waves) + 1) // 2
        halved = [wave.halves() if len(wave.rows) > most else (wave,) for wave in waves]
        return [part for parts in halved for part in parts]

    def _run_on(self, wave: Wave, ran: Ran) -> Ran:
        """Take a row that is alone from segment to segment, until it may leave or others come.

        Returns:
            The last run; those before it have been noted.
        """
        if len(wave.rows) > 1 or self._scheduler:
            return ran
        row, glance = wave.rows[0], self._steps.glance(wave)
        while glance and not self._disturbs(row) and glance():
            self._books.note(ran)
            ran = self._step(wave)
        return ran

    def _disturbs(self, row: Row) -> bool:
        """Tell whether anything asks to be done before the row's next segment."""
        if row.cancelled or self._awaited():
            return True
        return row.deadline_s < math.inf and row.deadline_s <= self._clock()

    def _run(self, waves: list[Wave]) -> tuple[Wave, Ran]:
        began = perf_counter()
        for wave in waves:
            self._steps.enter(wave)
        wave = merge(waves, self._runner)
        if len(waves) > 1:
            joined_s = perf_counter() - began
            self.costs.observe_join(len(wave.rows), wave.longest, joined_s)
        return wave, self._step(wave)

    def _step(self, wave: Wave) -> Ran:
        """Run the wave's next segment, and those after it that need nobody between them.

        Returns:
            The last run; those before it have been noted.
        """
        figures = len(wave.rows), wave.num_tokens, wave.longest
        gaps, depth, began = self._gaps(wave), wave.depth, perf_counter()
        self._steps.advance(wave, gaps)
        took_s = perf_counter() - began
        if wave.depth - depth == 1:
            return Ran(wave.depth - 1, *figures, took_s)
        *passed, last = self.costs.shares(depth, wave.depth, figures[0], figures[2])
        for index, share in enumerate(passed, depth):
            self._books.note(Ran(index, *figures, took_s * share))
        return Ran(wave.depth - 1, *figures, took_s * last)

    def _gaps(self, wave: Wave) -> Gaps | None:
        """Return what lets rows pass exits by themselves for a short while, if nobody waits."""
        if self._scheduler or self._awaited():
            return None
        gaps, free_s = self._steps.gaps(wave), UNDISTURBED_S
        if gaps is None:
            return None
        if wave.deadline_s < math.inf:
            free_s = min(free_s, wave.deadline_s - self._clock())
        end = self.costs.reach(wave.depth, len(wave.rows), wave.longest, free_s)
        return gaps if end == len(gaps) else np.where(places(len(gaps)) < end - 1, gaps, 0)

    def _settle(self, wave: Wave, ran: Ran) -> list[Outcome]:
        """Judge the rows after a segment, and let those leave that may."""
        judging = perf_counter()
        shares = self._steps.shares(wave)
        outcomes = self._retire(wave, self._steps.judge(wave))
        self._scheduler.put_back(wave)
        self._books.note(ran, perf_counter() - judging, shares)
        return outcomes

    def _retire(self, wave: Wave, reasons: NDArray[np.int8]) -> list[Outcome]:
        """Answer the rows that have a reason to leave, and keep the rest."""
        leaving = reasons.nonzero()[0]
        if not len(leaving):
            return []
        outcomes = self._answer(wave, leaving, reasons)
        if len(leaving) == len(wave.rows):
            wave.set_rows([])
        else:
            wave.compact(reasons == _STAYS)
        return outcomes

    def _answer(
        self, wave: Wave, leaving: NDArray[np.intp], reasons: NDArray[np.int8]
    ) -> list[Outcome]:
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
        return outcomes


def _refusal(row: Row) -> OfframpError:
    if row.cancelled:
        return _client_left()
    return DeadlineExceeded()


def _client_left() -> OfframpError:
    return Cancelled("the client has left")
