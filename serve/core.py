"""One turn of the engine: choose, run, judge, retire, compact. No threads."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from serve.errors import Cancelled, DeadlineExceeded, ModelFailure, OfframpError
from serve.judge import Reason, judge
from serve.row import Answer, Outcome, Row, WaveStats
from serve.runner import Runner, Step
from serve.scheduler import Scheduler, WaveLimits
from serve.signals import log_softmax
from serve.wave import Wave, merge

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 0.005


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the engine must know of the model.

    Attributes:
        exits: exit layers, ascending, one per segment.
        temperatures: one per exit.
        pad_id: fills short rows.
    """

    exits: tuple[int, ...]
    temperatures: tuple[float, ...]
    pad_id: int = 0


class EngineCore:
    """Rows in flight, advanced one segment at a time by a single caller."""

    def __init__(
        self,
        runner: Runner,
        shape: ModelShape,
        limits: WaveLimits,
        clock: Callable[[], float],
        observe: Callable[[WaveStats], None],
    ) -> None:
        self._runner = runner
        self._shape = shape
        self._clock = clock
        self._observe = observe
        self._scheduler = Scheduler(shape.exits, limits)
        self._swept_s = clock()

    def __bool__(self) -> bool:
        return bool(self._scheduler)

    def add(self, rows: list[Row]) -> None:
        """Take in admitted rows."""
        self._scheduler.add(rows)

    def turn(self) -> list[Outcome]:
        """Run one segment on one wave and return the outcomes it brought.

        A segment that fails gives its wave's rows an error each, and harms no other row.
        """
        outcomes = self._sweep()
        if not self._scheduler:
            return outcomes
        waves = self._scheduler.next_waves()
        rows = [row for wave in waves for row in wave.rows]
        try:
            outcomes += self._advance(merge(waves, self._runner))
        except Exception:
            log.exception("a segment failed at depth %d", waves[0].depth)
            error = ModelFailure("the model failed on this input; the server's log has the cause")
            outcomes += [Outcome(row, error) for row in rows]
        return outcomes

    def _sweep(self) -> list[Outcome]:
        """Refuse waiting rows that nobody waits for, or that are too late to start."""
        now = self._clock()
        if now < self._swept_s + SWEEP_EVERY_S:
            return []
        self._swept_s = now
        gone = self._scheduler.remove_waiting(lambda row: row.cancelled or row.deadline_s <= now)
        return [Outcome(row, _refusal(row)) for row in gone]

    def _advance(self, wave: Wave) -> list[Outcome]:
        outcomes = self._drop_late(wave) if wave.depth else []
        if wave.rows:
            outcomes += self._run(wave)
            self._scheduler.put_back(wave)
        return outcomes

    def _drop_late(self, wave: Wave) -> list[Outcome]:
        """Drop cancelled rows; let late ones leave with the best answer they have so far."""
        now = self._clock()
        # Read once: another thread may set it at any moment.
        gone = np.array([row.cancelled for row in wave.rows], np.bool_)
        dropped = [Outcome(wave.rows[i], _client_left()) for i in np.flatnonzero(gone)]
        if dropped:
            wave.compact(~gone)
        late = np.array([row.deadline_s <= now for row in wave.rows], np.bool_)
        return dropped + self._retire(wave, np.where(late, Reason.DEADLINE, Reason.STAYS))

    def _run(self, wave: Wave) -> list[Outcome]:
        mask = wave.attention_mask()
        began = perf_counter()
        step = self._step(wave, mask)
        ran = perf_counter()
        index = wave.depth
        wave.land(step)
        verdict = judge(
            wave.columns,
            wave.logits,
            index,
            len(self._shape.exits),
            self._shape.temperatures[index],
        )
        wave.signals = verdict.signals
        outcomes = self._retire(wave, verdict.reasons)
        self._observe(
            WaveStats(
                exit_index=index,
                num_rows=len(mask),
                num_tokens=int(mask.sum()),
                padded_tokens=mask.size,
                segment_s=ran - began,
                judge_s=perf_counter() - ran,
            )
        )
        return outcomes

    def _step(self, wave: Wave, mask: NDArray[np.int64]) -> Step:
        if wave.depth:
            return self._runner.advance(wave.depth, wave.hidden, wave.keep, mask)
        now = self._clock()
        for row in wave.rows:
            row.started_s = now
        ids, types = wave.padded(self._shape.pad_id)
        return self._runner.start(ids, mask, types)

    def _retire(self, wave: Wave, reasons: NDArray[np.int8]) -> list[Outcome]:
        """Answer the rows that have a reason to leave, and keep the rest."""
        leaving = reasons != Reason.STAYS
        if not leaving.any():
            return []
        now = self._clock()
        outcomes = [
            Outcome(wave.rows[i], self._answer(wave, int(i), Reason(reasons[i]), now))
            for i in np.flatnonzero(leaving)
        ]
        wave.compact(~leaving)
        return outcomes

    def _answer(self, wave: Wave, i: int, reason: Reason, now: float) -> Answer | OfframpError:
        row, logits, index = wave.rows[i], wave.logits[i], wave.depth - 1
        if np.isnan(log_softmax(logits)).any():
            return ModelFailure(f"the model gave no number at layer {self._shape.exits[index]}")
        return Answer(
            logits=logits,
            exit_index=index,
            reason=reason,
            signal=float(wave.signals[i]),
            queue_s=row.started_s - row.admitted_s,
            compute_s=now - row.started_s,
        )


def _refusal(row: Row) -> OfframpError:
    if row.cancelled:
        return _client_left()
    return DeadlineExceeded()


def _client_left() -> OfframpError:
    return Cancelled("the client has left")
