"""How a batch goes one deeper: in a chain of segments, and in a model of one shared layer."""

from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from serve.criteria.judge import HeadOutput, Prediction, judge
from serve.criteria.passing import come_by, gaps_from
from serve.engine.batch import Batch, places
from serve.engine.batch_merge import given_of
from serve.engine.cost_model import CostModel
from serve.engine.outputs import note_passing
from serve.engine.runner import AnyRunner, Gaps, MixedRunner, Runner, mixes_depths, passes_exits
from serve.rules.traits import Traits


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

    def enter(self, batch: Batch) -> None:
        """Do what fresh rows need before they can join others."""
        ...

    def advance(self, batch: Batch, gaps: Gaps | None = None) -> None:
        """Run the batch one deeper and put hidden states and logits into it.

        Args:
            batch: to be run.
            gaps: from `gaps`, to go on where rows surely stay.
        """
        ...

    def gaps(self, batch: Batch) -> Gaps | None:
        """Return what lets a batch pass exits by itself, see `runner.PassingRunner`.

        None if it must be looked at after every segment.
        """
        ...

    def judge(self, batch: Batch) -> NDArray[np.int8]:
        """Return (rows,) each row's `serve.criteria.judge.Reason` after a step.

        Sets the signals, and the answers that rules give; writes the rows' trails.
        """
        ...

    def shares(self, batch: Batch) -> list[tuple[int, int, int]]:
        """Return (exit index, rows, tokens) of each segment that was in the step.

        Empty if the batch was in one segment only.
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

    def enter(self, batch: Batch) -> None:
        pass

    def advance(self, batch: Batch, gaps: Gaps | None = None) -> None:
        more, depth = () if gaps is None else (gaps,), batch.depth
        if batch.depth:
            step = self._runner.advance(batch.depth, batch.hidden, batch.keep, batch.mask, *more)
        else:
            ids, types = batch.padded(self._shape.pad_id)
            step = self._runner.start(ids, batch.mask, types, *more)
        batch.land(step.hidden, step.exits)
        batch.logits, batch.uncertainty = step.logits, step.uncertainty
        if step.passed is not None:
            come_by(batch.columns, step.passed, depth, self._shape.temperatures)

    def gaps(self, batch: Batch) -> Gaps | None:
        if not self._passes or batch.has_trails:
            return None
        rule, shape = batch.rows[0].rule, self._shape
        return gaps_from(batch.depth, rule, batch.columns, shape.traits, shape.temperatures)

    def judge(self, batch: Batch) -> NDArray[np.int8]:
        index, shape = batch.depth - 1, self._shape
        said = HeadOutput(batch.logits, batch.uncertainty, batch.counted)
        verdict = judge(batch.columns, said, index, len(shape.exits), shape.temperatures[index])
        batch.signals, batch.given = verdict.signals, verdict.given
        if batch.has_trails:
            note_passing(batch, places(len(batch.rows)))
        return verdict.reasons

    def shares(self, batch: Batch) -> list[tuple[int, int, int]]:
        return []


class SharedSteps:
    """Rows at any depth in one batch; some layers have an exit, each row is judged at its own."""

    def __init__(self, runner: MixedRunner, shape: ModelShape) -> None:
        self._runner, self._shape = runner, shape
        self._temperatures = np.array(shape.temperatures, np.float32)
        layers = np.arange(len(runner) + 1)
        self._next_exit = np.searchsorted(shape.exits, layers)  # (layers + 1,) at or after it
        self._exit_at = np.full(len(layers), -1, np.int64)  # (layers + 1,) or -1
        self._exit_at[list(shape.exits)] = np.arange(len(shape.exits))

    def enter(self, batch: Batch) -> None:
        if batch.hidden is None:
            ids, types = batch.padded(self._shape.pad_id)
            batch.place(self._runner.start(ids, batch.mask, types).hidden)

    def gaps(self, batch: Batch) -> Gaps | None:
        return None

    def advance(self, batch: Batch, gaps: Gaps | None = None) -> None:
        assert batch.depths is not None
        step = self._runner.advance_mixed(batch.depths, batch.hidden, batch.keep, batch.mask)
        batch.land(step.hidden)
        at = self._here(batch)
        if not batch.logits.shape[1]:
            batch.logits = np.full_like(step.logits, np.nan)
        batch.logits[at] = step.logits[at]
        batch.uncertainty = step.uncertainty

    def judge(self, batch: Batch) -> NDArray[np.int8]:
        assert batch.depths is not None
        assert batch.last_exit is not None
        at = self._here(batch)
        index = self._exit_at[batch.depths[at]]
        batch.last_exit[at] = index
        columns = batch.columns.take(at)
        num_exits, temperatures = len(self._shape.exits), self._temperatures[index]
        verdict = judge(columns, self._said(batch, at), index, num_exits, temperatures)
        batch.columns.put(at, columns)
        batch.signals[at] = verdict.signals
        self._take_over(batch, at, verdict.given)
        if batch.has_trails:
            note_passing(batch, at)
        reasons = np.zeros(len(batch.rows), np.int8)
        reasons[at] = verdict.reasons
        return reasons

    @staticmethod
    def _said(batch: Batch, at: NDArray[np.intp]) -> HeadOutput:
        uncertainty, counted = batch.uncertainty, batch.counted
        return HeadOutput(
            batch.logits[at],
            None if uncertainty is None else uncertainty[at],
            None if counted is None else counted[at],
        )

    @staticmethod
    def _take_over(batch: Batch, at: NDArray[np.intp], new: Prediction | None) -> None:
        """Put the answers that some rows would leave with now among those of the others."""
        if new is None and batch.given is None:
            return
        before = given_of(batch)
        given = Prediction(before.logits.copy(), before.exit_index.copy(), before.label.copy())
        given.logits[at] = batch.logits[at] if new is None else new.logits
        given.exit_index[at] = batch.exits_of(at) if new is None else new.exit_index
        given.label[at] = -1 if new is None else new.label
        batch.given = given

    def shares(self, batch: Batch) -> list[tuple[int, int, int]]:
        assert batch.depths is not None
        segments = self._next_exit[batch.depths]
        lengths = batch.mask.sum(axis=1)
        return [
            (int(k), int((segments == k).sum()), int(lengths[segments == k].sum()))
            for k in np.unique(segments)
        ]

    def _here(self, batch: Batch) -> NDArray[np.intp]:
        """Return the rows that have just come by an exit."""
        assert batch.depths is not None
        return np.flatnonzero(self._exit_at[batch.depths] >= 0)
