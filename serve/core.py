"""One turn of the engine: choose, run, judge, retire, compact. No threads."""

import logging
from collections.abc import Callable, Iterable
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from serve.alone import Alone
from serve.books import Books, Ran
from serve.cost import CostModel
from serve.errors import Cancelled, DeadlineExceeded, OfframpError
from serve.judge import Reason
from serve.leaving import failed, farewells, gave_no_number
from serve.memory import out_of_memory
from serve.merging import merge
from serve.row import Answer, Outcome, Row, WaveStats
from serve.runner import AnyRunner, Gaps, mixes_depths
from serve.scheduler import Scheduler, WaveLimits
from serve.steps import ModelShape, steps_of
from serve.undisturbed import in_time
from serve.wave import Wave

__all__ = ["EngineCore", "ModelShape"]

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 0.005
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
        self._alone = Alone(runner, shape, self.costs, self._books, clock, awaited)
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

        Rows that surely stay go on into the next while nobody waits; a row that is alone goes as
        far as it gets.

        A segment that fails gives its wave's rows an error each, and harms no other row.
        """
        self._books.write()
        now = self._clock()
        if row := self._scheduler.take_alone(self._may_go_alone):
            if _gone(row, now):
                return [Outcome(row, _refusal(row))]
            return self._gone_alone(self._alone.start(row, now))
        outcomes = self._sweep(now)
        if not self._scheduler:
            return outcomes
        waves = self._scheduler.next_waves(now)
        for wave in waves:
            if wave.depth or wave.hidden is not None:
                outcomes += self._drop_late(wave, now)
            else:
                outcomes += self._begin(wave, now)
        waves = [wave for wave in waves if wave.rows]
        if not waves:
            return outcomes
        if self._left_alone(waves):
            return outcomes + self._gone_alone(self._alone.resume(waves[0]))
        return outcomes + self._advance(waves, may_split=True)

    def _left_alone(self, waves: list[Wave]) -> bool:
        """Tell whether only one row is left of those that have started, and can go on alone."""
        if self._scheduler or len(waves) > 1 or len(waves[0].rows) > 1:
            return False
        return waves[0].depth > 0 and self._may_go_alone(waves[0].rows[0])

    def _may_go_alone(self, row: Row) -> bool:
        """Tell whether the only row there is can go without a wave, and nobody else waits."""
        return self._alone.takes(row) and not self._awaited()

    def _gone_alone(self, end: Outcome | Wave) -> list[Outcome]:
        if isinstance(end, Outcome):
            return [end]
        self._scheduler.hold(end, end.rows[0].started_s)
        self._scheduler.put_back(end, self._clock())
        return []

    def _sweep(self, now: float) -> list[Outcome]:
        """Refuse waiting rows that nobody waits for, or that are too late to start."""
        if now < self._swept_s + SWEEP_EVERY_S:
            return []
        self._swept_s = now
        return [Outcome(row, _refusal(row)) for row in self._scheduler.remove_gone(now)]

    def _begin(self, wave: Wave, now: float) -> list[Outcome]:
        """Start fresh rows, but for those that nobody waits for or that are too late."""
        # Asked once per row: another thread may cancel it at any moment.
        gone = [row for row in wave.rows if _gone(row, now)]
        if gone:
            wave.set_rows([row for row in wave.rows if row not in gone])
        if wave.rows:
            wave.prepare(self._shape.traits, self._shared)
        for row in wave.rows:
            row.started_s = now
        return [Outcome(row, _refusal(row)) for row in gone]

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
        except Exception as error:
            parts = self._smaller(waves) if may_split and out_of_memory(error) else []
            if len(parts) > 1:
                log.warning("out of memory at depth %d: trying again in parts", waves[0].depth)
                return [o for part in parts for o in self._advance([part], may_split=False)]
            log.exception("a segment failed at depth %d", waves[0].depth)
            return [Outcome(row, failed()) for wave in waves for row in wave.rows]
        return self._settle(wave, ran)

    @staticmethod
    def _smaller(waves: list[Wave]) -> list[Wave]:
        """Return the rows as waves of at most half the size, not joined."""
        most = (sum(len(wave.rows) for wave in waves) + 1) // 2
        halved = [wave.halves() if len(wave.rows) > most else (wave,) for wave in waves]
        return [part for parts in halved for part in parts]

    def _run(self, waves: list[Wave]) -> tuple[Wave, Ran]:
        for wave in waves:
            self._steps.enter(wave)
        began = perf_counter()
        wave = merge(waves, self._runner)
        if len(waves) > 1:
            joined_s = perf_counter() - began
            self.costs.observe_join(len(wave.rows), wave.longest, joined_s)
        return wave, self._step(wave)

    def _step(self, wave: Wave) -> Ran:
        """Run the wave's next segment, and those after it that need nobody between them."""
        figures = len(wave.rows), wave.num_tokens, wave.longest
        gaps, depth, began = self._gaps(wave), wave.depth, perf_counter()
        self._steps.advance(wave, gaps)
        return Ran(range(depth, wave.depth), *figures, perf_counter() - began)

    def _gaps(self, wave: Wave) -> Gaps | None:
        """Return what lets rows pass exits by themselves for a short while, if nobody waits."""
        if self._scheduler or self._awaited():
            return None
        gaps = self._steps.gaps(wave)
        if gaps is None:
            return None
        size = wave.depth, len(wave.rows), wave.longest
        return in_time(gaps, self.costs, size, wave.deadline_s, self._clock)

    def _settle(self, wave: Wave, ran: Ran) -> list[Outcome]:
        """Judge the rows after a segment, and let those leave that may."""
        judging = perf_counter()
        try:
            shares, reasons = self._steps.shares(wave), self._steps.judge(wave)
        except Exception:
            # Not tried again: the segment has run, and rules may have counted this exit.
            log.exception("what heads said at depth %d could not be judged", wave.depth)
            return [Outcome(row, failed()) for row in wave.rows]
        outcomes = self._retire(wave, reasons)
        self._scheduler.put_back(wave, self._clock())
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
                result = gave_no_number(self._shape.exits[head])
            else:
                queue_s, compute_s = row.started_s - row.admitted_s, now - row.started_s
                trail = () if row.trail is None else row.trail
                result = Answer(
                    logits, index, _REASONS[reason], signal, queue_s, compute_s, head, label, trail
                )
            outcomes.append(Outcome(row, result))
        return outcomes


def _gone(row: Row, now_s: float) -> bool:
    return row.cancelled or row.deadline_s <= now_s


def _refusal(row: Row) -> OfframpError:
    if row.cancelled:
        return _client_left()
    return DeadlineExceeded()


def _client_left() -> OfframpError:
    return Cancelled("the client has left")
