"""The rules of a batch's rows as columns of arrays, so that a batch may mix rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from serve.criteria import carry as carries
from serve.criteria.carry import THRESHOLDS, Carry
from serve.criteria.compiled_rule import KINDS, NEVER, compiler
from serve.criteria.head_output import EVERY, ExitIndex, Rows
from serve.rules import ExitRule
from serve.rules.traits import Task, Traits

__all__ = ["KINDS", "NEVER", "RuleState"]


@dataclass(slots=True)
class RuleState:
    """What each row's rule asks for, and how far the row has come with it.

    Attributes:
        kind: (rows,) index into `KINDS`, or `NEVER`.
        threshold: (rows,) that the rule's signal is compared with; of patience, the tolerance.
        patience: (rows,) of rules that have one.
        first: (rows,) index of the first exit at which the row may leave.
        last: (rows,) index of the exit at which it leaves at the latest.
        label: (rows,) the label at the exit before; -1 before the first and after a NaN.
        streak: (rows,) how many exits in a row have agreed, or were confident.
        kinds: what `kind` holds at most; rows may have left since.
        bounded: whether a row may be kept from leaving, or may have to leave, at some exit;
            likewise.
        task: of the model.
        carry: what only some rules need; empty where none of them is in the batch.
    """

    kind: NDArray[np.int8]
    threshold: NDArray[np.float32]
    patience: NDArray[np.int32]
    first: NDArray[np.int32]
    last: NDArray[np.int32]
    label: NDArray[np.int32]
    streak: NDArray[np.int32]
    kinds: tuple[int, ...]
    bounded: bool
    task: Task
    carry: Carry

    @classmethod
    def of(cls, rules: Sequence[ExitRule], traits: Traits) -> "RuleState":
        """Build the columns of fresh rows.

        Args:
            rules: one per row, each checked against the model (`serve.rules.check_rule`).
            traits: of the model.
        """
        if len(rules) == 1:
            return _of_one(rules[0], traits).fresh()
        return cls._stack(rules, traits)

    @classmethod
    def _stack(cls, rules: Sequence[ExitRule], traits: Traits) -> "RuleState":
        compile_rule = compiler(traits)
        kind, threshold, patience, first, last, carry = zip(
            *[compile_rule(rule) for rule in rules], strict=True
        )
        return cls(
            kind=np.array(kind, np.int8),
            threshold=np.array(threshold, np.float32),
            patience=np.array(patience, np.int32),
            first=np.array(first, np.int32),
            last=np.array(last, np.int32),
            label=np.full(len(rules), -1, np.int32),
            streak=np.zeros(len(rules), np.int32),
            kinds=tuple(sorted(set(kind))),
            bounded=any(first) or min(last) < len(traits.exits) - 1,
            task=traits.task,
            carry=carries.stack(carry) if any(carry) else {},
        )

    def fresh(self) -> "RuleState":
        """Return the same columns, with copies of what is written to."""
        return RuleState(
            self.kind,
            self.threshold,
            self.patience,
            self.first,
            self.last,
            self.label.copy(),
            self.streak.copy(),
            self.kinds,
            self.bounded,
            self.task,
            {name: column.copy() for name, column in self.carry.items()},
        )

    def take(self, rows: NDArray[np.intp]) -> "RuleState":
        """Return the columns of these rows only, in this order."""
        return RuleState(
            self.kind[rows],
            self.threshold[rows],
            self.patience[rows],
            self.first[rows],
            self.last[rows],
            self.label[rows],
            self.streak[rows],
            self.kinds,
            self.bounded,
            self.task,
            carries.take(self.carry, rows) if self.carry else {},
        )

    def put(self, rows: NDArray[np.intp], part: "RuleState") -> None:
        """Write back how far these rows have come, as `part`, taken from them, has it now."""
        self.label[rows], self.streak[rows] = part.label, part.streak
        if part.carry:
            carries.put(self.carry, rows, part.carry)

    @classmethod
    def concatenate(cls, parts: Sequence["RuleState"]) -> "RuleState":
        """Return the parts' rows one after another; all of one model."""
        return cls(
            np.concatenate([part.kind for part in parts]),
            np.concatenate([part.threshold for part in parts]),
            np.concatenate([part.patience for part in parts]),
            np.concatenate([part.first for part in parts]),
            np.concatenate([part.last for part in parts]),
            np.concatenate([part.label for part in parts]),
            np.concatenate([part.streak for part in parts]),
            tuple(sorted({kind for part in parts for kind in part.kinds})),
            any([part.bounded for part in parts]),
            parts[0].task,
            carries.concatenate([(len(part.kind), part.carry) for part in parts])
            if any([part.carry for part in parts])
            else {},
        )

    def threshold_at(self, rows: Rows, exit_index: ExitIndex) -> NDArray[np.float32]:
        """Return the thresholds that hold for these rows, each at its exit."""
        if THRESHOLDS not in self.carry:
            # Most calls are of this kind; to index all rows takes longer than to ask.
            return self.threshold if rows is EVERY else self.threshold[rows]
        own = self.carried_at(THRESHOLDS, rows, exit_index)
        at_exit: NDArray[np.float32] = np.where(np.isnan(own), self.threshold[rows], own)
        return at_exit

    def carried_at(self, name: str, rows: Rows, exit_index: ExitIndex) -> NDArray[np.floating]:
        """Return (rows,) of a carried column (rows, exits) each row's entry for its exit."""
        column = self.carry[name][rows]
        if isinstance(exit_index, np.ndarray):
            own: NDArray[np.floating] = column[np.arange(len(column)), exit_index]
            return own
        return column[:, exit_index]


@lru_cache(maxsize=1024)
def _of_one(rule: ExitRule, traits: Traits) -> RuleState:
    """Return the columns of one fresh row, to be copied: rows come with few different rules."""
    return RuleState._stack([rule], traits)
