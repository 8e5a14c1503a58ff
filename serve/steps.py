"""How a wave goes one deeper: in a chain of segments, and in a model of one shared layer."""

from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from serve.cost import CostModel
from serve.criteria.passing import come_by, gaps_from
from serve.judge import Given, Said, judge
from serve.leaving import note_passing
from serve.merging import given_of
from serve.runner import AnyRunner, Gaps, MixedRunner, Runner, mixes_depths, passes_exits
from serve.traits import Traits
from serve.wave import Wave, places


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the engine must know of the model.

    Attributes:
        traits: its exits, labels and task; one exit per segment, or where layers are shared,
            after some of them.
        temperatures: one per exit.
        pad_id: fills short rows.
        costs: what segments cost, if that has been measured.
    """

    traits: Traits
    temperatures: tuple[float, ...]
    pad_id: int = 0
    costs: CostModel | None = None

    @property
    def exits(self) -> tuple[int, ...]:
        """Exit layers, ascending."""
        return self.traits.exits


class Steps(Protocol):
    """What the engine's core asks of either kind of model."""

    def enter(self, wave: Wave) -> None:
        """Do what fresh rows need before they can join others."""
        ...

    def advance(self, wave: Wave, gaps: Gaps | None = None) -> None:
        """Run the wave one deeper and put hidden states and logits into it.

        Args:
            wave: to be run.
            gaps: from `gaps`, to go on where rows surely stay.
        """
        ...

    def gaps(self, wave: Wave) -> Gaps | None:
        """Return what lets a wave pass exits by itself, see `runner.PassingRunner`.

        None if it must be looked at after every segment.
        """
        ...

    def judge(self, wave: Wave) -> NDArray[np.int8]:
        """Return (rows,) each row's `serve.judge.Reason` after a step.

        Sets the signals, and the answers that rules give; writes the rows' trails.
        """
        ...

    def shares(self, wave: Wave) -> list[tuple[int, int, int]]:
        """Return (exit index, rows, tokens) of each segment that was in the step.

        Empty if the wave was in one segment only.
        """
        ...


def steps_of(runner: AnyRunner, shape: ModelShape) -> Steps:
    """Return the steps that suit the runner."""
    if mixes_depths(runner):
        return SharedSteps(runner, shape)
    return ChainSteps(cast(Runner, runner), shape)


class ChainSteps:
    """Rows at one depth; every segment ends at an exit."""

    def __init__(self, runner: Runner, shape: ModelShape) -> None:
        self._runner, self._shape = runner, shape
        self._passes = passes_exits(runner)

    def enter(self, wave: Wave) -> None:
        pass

    def advance(self, wave: Wave, gaps: Gaps | None = None) -> None:
        more, depth = () if gaps is None else (gaps,), wave.depth
        if wave.depth:
            step = self._runner.advance(wave.depth, wave.hidden, wave.keep, wave.mask, *more)
        else:
            ids, types = wave.padded(self._shape.pad_id)
            step = self._runner.start(ids, wave.mask, types, *more)
        wave.land(step.hidden, step.exits)
        wave.logits, wave.uncertainty = step.logits, step.uncertainty
        if step.passed is not None:
            come_by(wave.columns, step.passed, depth, self._shape.temperatures)

    def gaps(self, wave: Wave) -> Gaps | None:
        if not self._passes or wave.has_trails:
            return None
        rule, shape = wave.rows[0].rule, self._shape
        return gaps_from(wave.depth, rule, wave.columns, shape.traits, shape.temperatures)

    def judge(self, wave: Wave) -> NDArray[np.int8]:
        index, shape = wave.depth - 1, self._shape
        said = Said(wave.logits, wave.uncertainty, wave.counted)
        verdict = judge(wave.columns, said, index, len(shape.exits), shape.temperatures[index])
        wave.signals, wave.given = verdict.signals, verdict.given
        if wave.has_trails:
            note_passing(wave, places(len(wave.rows)))
        return verdict.reasons

    def shares(self, wave: Wave) -> list[tuple[int, int, int]]:
        return []


class SharedSteps:
    """Rows at any depth in one wave; some layers have an exit, each row is judged at its own."""

    def __init__(self, runner: MixedRunner, shape: ModelShape) -> None:
        self._runner, self._shape = runner, shape
        self._temperatures = np.array(shape.temperatures, np.float32)
        layers = np.arange(len(runner) + 1)
        self._next_exit = np.searchsorted(shape.exits, layers)  # (layers + 1,) at or after it
        self._exit_at = np.full(len(layers), -1, np.int64)  # (layers + 1,) or -1
        self._exit_at[list(shape.exits)] = np.arange(len(shape.exits))

    def enter(self, wave: Wave) -> None:
        if wave.hidden is None:
            ids, types = wave.padded(self._shape.pad_id)
            wave.place(self._runner.start(ids, wave.mask, types).hidden)

    def gaps(self, wave: Wave) -> Gaps | None:
        return None

    def advance(self, wave: Wave, gaps: Gaps | None = None) -> None:
        assert wave.depths is not None
        step = self._runner.advance_mixed(wave.depths, wave.hidden, wave.keep, wave.mask)
        wave.land(step.hidden)
        at = self._here(wave)
        if not wave.logits.shape[1]:
            wave.logits = np.full_like(step.logits, np.nan)
        wave.logits[at] = step.logits[at]
        wave.uncertainty = step.uncertainty

    def judge(self, wave: Wave) -> NDArray[np.int8]:
        assert wave.depths is not None
        assert wave.last_exit is not None
        at = self._here(wave)
        index = self._exit_at[wave.depths[at]]
        wave.last_exit[at] = index
        columns = wave.columns.take(at)
        num_exits, temperatures = len(self._shape.exits), self._temperatures[index]
        verdict = judge(columns, self._said(wave, at), index, num_exits, temperatures)
        wave.columns.put(at, columns)
        wave.signals[at] = verdict.signals
        self._take_over(wave, at, verdict.given)
        if wave.has_trails:
            note_passing(wave, at)
        reasons = np.zeros(len(wave.rows), np.int8)
        reasons[at] = verdict.reasons
        return reasons

    @staticmethod
    def _said(wave: Wave, at: NDArray[np.intp]) -> Said:
        uncertainty, counted = wave.uncertainty, wave.counted
        return Said(
            wave.logits[at],
            None if uncertainty is None else uncertainty[at],
            None if counted is None else counted[at],
        )

    @staticmethod
    def _take_over(wave: Wave, at: NDArray[np.intp], new: Given | None) -> None:
        """Put the answers that some rows would leave with now among those of the others."""
        if new is None and wave.given is None:
            return
        before = given_of(wave)
        given = Given(before.logits.copy(), before.exit_index.copy(), before.label.copy())
        given.logits[at] = wave.logits[at] if new is None else new.logits
        given.exit_index[at] = wave.exits_of(at) if new is None else new.exit_index
        given.label[at] = -1 if new is None else new.label
        wave.given = given

    def shares(self, wave: Wave) -> list[tuple[int, int, int]]:
        assert wave.depths is not None
        segments = self._next_exit[wave.depths]
        lengths = wave.mask.sum(axis=1)
        return [
            (int(k), int((segments == k).sum()), int(lengths[segments == k].sum()))
            for k in np.unique(segments)
        ]

    def _here(self, wave: Wave) -> NDArray[np.intp]:
        """Return the rows that have just come by an exit."""
        assert wave.depths is not None
        return np.flatnonzero(self._exit_at[wave.depths] >= 0)
