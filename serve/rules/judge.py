"""Which rows of a batch leave at an exit: every row judged on its own logits by its own rule.

The rules of a batch's rows are columns of arrays, so that one batch may mix rules.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.rules.compiled_rule import CompiledRule
from serve.rules.criterion import (
    EVERY_ROW,
    Columns,
    Criterion,
    FreshColumns,
    HeadOutput,
    Judgement,
    Prediction,
    Reason,
    RowsAtExit,
    fit_width,
)


@dataclass(slots=True)
class RuleState:
    """What each row's rule asks for, and how far the row has come with it.

    Attributes:
        criteria: those that judge the rows. The rows of one may have left since.
        kind: (rows,) int8 index into `criteria`.
        first: (rows,) int32 index of the first exit at which the row may leave.
        last: (rows,) int32 index of the exit at which it leaves at the latest.
        bounded: whether the layer bounds of some row exclude some exit.
        columns: parameters and progress by name, rows first; only what the criteria declare.
    """

    criteria: tuple[Criterion, ...]
    kind: NDArray[np.int8]
    first: NDArray[np.int32]
    last: NDArray[np.int32]
    bounded: bool
    columns: Columns

    @classmethod
    def of(cls, rules: Sequence[CompiledRule]) -> "RuleState":
        """Return the state of fresh rows, one rule per row, all of one model."""
        distinct = {rule: i for i, rule in enumerate(dict.fromkeys(rules))}
        once = _of_one(rules[0]) if len(distinct) == 1 else _of_each(tuple(distinct))
        return once.take(np.array([distinct[rule] for rule in rules], np.intp))

    def take(self, rows: NDArray[np.intp]) -> "RuleState":
        """Return the state of these rows only, in this order."""
        return RuleState(
            self.criteria,
            self.kind[rows],
            self.first[rows],
            self.last[rows],
            self.bounded,
            {name: column[rows] for name, column in self.columns.items()},
        )

    @classmethod
    def concatenate(cls, parts: Sequence["RuleState"]) -> "RuleState":
        """Return the parts' rows one after another; all of one model."""
        criteria = tuple(dict.fromkeys([c for part in parts for c in part.criteria]))
        return cls(
            criteria,
            np.concatenate([_renumbered(part, criteria) for part in parts]),
            np.concatenate([part.first for part in parts]),
            np.concatenate([part.last for part in parts]),
            any([part.bounded for part in parts]),
            _concatenate([(len(part.kind), part.columns) for part in parts]),
        )


@lru_cache(maxsize=256)
def _of_one(rule: CompiledRule) -> RuleState:
    """Return the state of one fresh row, to be copied: rows come with few different rules."""
    return _of_each((rule,))


def _of_each(rules: tuple[CompiledRule, ...]) -> RuleState:
    """Return the state of one fresh row for each rule."""
    criteria = tuple(dict.fromkeys([rule.criterion for rule in rules]))
    return RuleState(
        criteria=criteria,
        kind=np.array([criteria.index(rule.criterion) for rule in rules], np.int8),
        first=np.array([rule.first for rule in rules], np.int32),
        last=np.array([rule.last for rule in rules], np.int32),
        bounded=any([rule.bounded for rule in rules]),
        columns=_stack([rule.columns for rule in rules]),
    )


def _renumbered(part: RuleState, criteria: tuple[Criterion, ...]) -> NDArray[np.int8]:
    if part.criteria == criteria[: len(part.criteria)]:
        return part.kind
    places = np.array([criteria.index(criterion) for criterion in part.criteria], np.int8)
    renumbered: NDArray[np.int8] = places[part.kind]
    return renumbered


def _stack(fresh: Sequence[FreshColumns]) -> Columns:
    """Return the columns of rows of which each has its own values, or lacks some columns."""
    columns: Columns = {}
    for name, like in _examples(fresh).items():
        blank = np.zeros_like(like)
        values = [own.get(name, blank) for own in fresh]
        # A threshold may be one number in some rules, and one number per exit in others.
        if any([value.ndim != like.ndim for value in values]):
            values = [np.broadcast_to(value, like.shape) for value in values]
        columns[name] = np.stack(values)
    return columns


def _concatenate(parts: Sequence[tuple[int, Columns]]) -> Columns:
    """Return the rows of all parts, (number of rows, columns), one after another."""
    columns: Columns = {}
    for name, like in _examples([own for _, own in parts]).items():
        width = max([own[name].shape[1] for _, own in parts if name in own and own[name].ndim > 1]
                    or [0])  # fmt: skip
        columns[name] = np.concatenate(
            [_as_wide(own.get(name), num_rows, like, width) for num_rows, own in parts]
        )
    return columns


def _as_wide(
    column: NDArray[Any] | None, num_rows: int, like: NDArray[Any], width: int
) -> NDArray[Any]:
    """Return a part's column in the shape of `like`, blank where the part lacks it."""
    if column is None:
        column = np.zeros((num_rows, *like.shape[1:]), like.dtype)
    elif column.ndim < like.ndim:
        column = np.repeat(column[:, None], width, axis=1)
    return fit_width(column, width)


def _examples(columns: Iterable[FreshColumns]) -> dict[str, NDArray[Any]]:
    """Return each column's name once, with the array of the most axes that has it."""
    examples: dict[str, NDArray[Any]] = {}
    for own in columns:
        for name, column in own.items():
            if name not in examples or column.ndim > examples[name].ndim:
                examples[name] = column
    return examples


# numpy takes a plain number several times faster than an enum's member.
_MAX_LAYER, _FINAL = np.int8(Reason.MAX_LAYER), np.int8(Reason.FINAL)


class Decision(NamedTuple):
    """What has been judged of the rows.

    Attributes:
        reasons: (rows,) int8 of `Reason`: why each row leaves, or that it stays.
        signals: (rows,) float32, the signal of each row's rule; NaN where the rule has none.
        prediction: what the rows would leave with, if some rule in the batch answers with
            anything but this exit's logits. A row that must leave later, at its deadline, leaves
            with it too.
    """

    reasons: NDArray[np.int8]
    signals: NDArray[np.float32]
    prediction: Prediction | None = None


def judge(
    state: RuleState,
    head: HeadOutput,
    exit_index: int,
    num_exits: int,
    temperature: float = 1.0,
) -> Decision:
    """Judge rows at an exit, counted from 0, and advance their state.

    A NaN signal is never confident: such a row goes on to its last permitted exit.
    """
    permitted = state.first <= exit_index
    rows = RowsAtExit(state.columns, EVERY_ROW, exit_index, temperature, permitted)
    if len(state.criteria) == 1:
        judged = state.criteria[0].judge(rows, head)
    else:
        judged = _judge_mixed(state, head, rows)
    if exit_index == num_exits - 1:
        reasons = np.full(len(permitted), _FINAL)
    else:
        reasons = np.where(judged.confident & permitted, _reasons(state), np.int8(0))
        if state.bounded:
            late = (state.last <= exit_index) & (reasons == 0)
            reasons[late] = _MAX_LAYER
    return Decision(reasons, judged.signal, judged.prediction)


def _reasons(state: RuleState) -> NDArray[np.int8]:
    """Return (rows,) why each row leaves that is confident; (1,) if that is one reason."""
    reasons = np.array([criterion.reason for criterion in state.criteria], np.int8)
    return reasons if len(reasons) == 1 else reasons[state.kind]


def _judge_mixed(state: RuleState, head: HeadOutput, rows: RowsAtExit) -> Judgement:
    """Judge the rows of each criterion by themselves."""
    num_rows, exit_index = len(state.kind), rows.exit_index
    confident, signal = np.empty(num_rows, np.bool_), np.empty(num_rows, np.float32)
    prediction: Prediction | None = None
    for kind, criterion in enumerate(state.criteria):
        index = np.flatnonzero(state.kind == kind)
        if not len(index):
            continue
        own_rows = RowsAtExit(
            state.columns, index, exit_index, rows.temperature, rows.permitted[index]
        )
        own = criterion.judge(own_rows, head.of(index))
        confident[index], signal[index] = own.confident, own.signal
        if own.prediction is not None:
            prediction = prediction or Prediction.at(head.logits, exit_index)
            prediction.put(index, own.prediction)
    return Judgement(confident, signal, prediction)
