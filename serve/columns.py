"""The rules of a wave's rows as columns of arrays, so that a wave may mix rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.rules import ConfidenceRule, EntropyRule, ExitRule, LayerRule, PatienceRule, Rule
from serve.traits import Traits

KINDS: tuple[type[Rule], ...] = (EntropyRule, ConfidenceRule, PatienceRule, LayerRule)
NEVER = len(KINDS)


class _Compiled(NamedTuple):
    """One rule in terms of one model's exit indices."""

    kind: int
    threshold: float
    patience: int
    first: int
    last: int


@dataclass(slots=True)
class RuleColumns:
    """What each row's rule asks for, and how far the row has come with it.

    Attributes:
        kind: (rows,) index into `KINDS`, or `NEVER`.
        threshold: (rows,) of entropy and confidence rules.
        patience: (rows,) of patience rules.
        first: (rows,) index of the first exit at which the row may leave.
        last: (rows,) index of the exit at which it leaves at the latest.
        label: (rows,) the label at the exit before; -1 before the first and after a NaN.
        streak: (rows,) how many exits in a row have agreed with the one before.
        kinds: what `kind` holds at most; rows may have left since.
        bounded: whether a row may be kept from leaving, or may have to leave, at some exit;
            likewise.
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

    @classmethod
    def of(cls, rules: Sequence[ExitRule], traits: Traits) -> "RuleColumns":
        """Build the columns of fresh rows.

        Args:
            rules: one per row, each checked against the model (`serve.rules.check_rule`).
            traits: of the model.
        """
        exits = traits.exits
        compiled = [_compile(rule, exits) for rule in rules]
        kind, threshold, patience, first, last = zip(*compiled, strict=True)
        return cls(
            kind=np.array(kind, np.int8),
            threshold=np.array(threshold, np.float32),
            patience=np.array(patience, np.int32),
            first=np.array(first, np.int32),
            last=np.array(last, np.int32),
            label=np.full(len(rules), -1, np.int32),
            streak=np.zeros(len(rules), np.int32),
            kinds=tuple(sorted(set(kind))),
            bounded=any(first) or min(last) < len(exits) - 1,
        )

    def take(self, rows: NDArray[np.intp]) -> "RuleColumns":
        """Return the columns of these rows only, in this order."""
        return RuleColumns(
            self.kind[rows],
            self.threshold[rows],
            self.patience[rows],
            self.first[rows],
            self.last[rows],
            self.label[rows],
            self.streak[rows],
            self.kinds,
            self.bounded,
        )

    @classmethod
    def concatenate(cls, parts: Sequence["RuleColumns"]) -> "RuleColumns":
        """Return the parts' rows one after another."""
        return cls(
            np.concatenate([part.kind for part in parts]),
            np.concatenate([part.threshold for part in parts]),
            np.concatenate([part.patience for part in parts]),
            np.concatenate([part.first for part in parts]),
            np.concatenate([part.last for part in parts]),
            np.concatenate([part.label for part in parts]),
            np.concatenate([part.streak for part in parts]),
            tuple(sorted({kind for part in parts for kind in part.kinds})),
            any(part.bounded for part in parts),
        )


@lru_cache(maxsize=4096)
def _compile(rule: ExitRule, exits: tuple[int, ...]) -> _Compiled:
    inside = [
        index
        for index, layer in enumerate(exits)
        if (rule.min_layer or 1) <= layer <= (rule.max_layer or exits[-1])
    ]
    first, last = inside[0], inside[-1]
    if isinstance(rule, LayerRule):
        first = last = exits.index(rule.layer)
    kind = KINDS.index(type(rule)) if type(rule) in KINDS else NEVER
    threshold = rule.threshold if isinstance(rule, EntropyRule | ConfidenceRule) else 0.0
    patience = rule.patience if isinstance(rule, PatienceRule) else 0
    return _Compiled(kind, threshold, patience, first, last)
