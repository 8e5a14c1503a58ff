"""The recording of a data set, with the correct answers."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.recorded.answers import read_answers, right_answers
from serve.rules.replay import Logits, Recording, Taken

Ids: TypeAlias = NDArray[np.int64]
# The correct answers: (rows,) label ids or values; (rows, labels) 1 or 0; (rows, tokens) tag ids,
# `IGNORED` where no word begins.
Gold: TypeAlias = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Recorded(Recording):
    """What every exit of a model said of some texts.

    Attributes:
        num_tokens: (rows,) special ones included.
        gold: the correct answers; None where they are not known.
    """

    num_tokens: NDArray[np.intp] = field(kw_only=True)
    gold: Gold | None = field(default=None, kw_only=True)

    def of(self, rows: NDArray[np.intp] | slice) -> Self:
        """Return what was said of some of the texts."""
        return replace(
            self,
            logits=self.logits[:, rows],
            counted=None if self.counted is None else self.counted[rows],
            uncertainty=None if self.uncertainty is None else self.uncertainty[:, rows],
            num_tokens=self.num_tokens[rows],
            gold=None if self.gold is None else self.gold[rows],
        )

    @property
    def num_rows(self) -> int:
        """How many texts there are."""
        return len(self.num_tokens)

    @cached_property
    def answers(self) -> Ids | None:
        """(exits, rows) what every exit answers, as numbers that are equal where the answers are.

        An answer is a label, a set of labels, or all entities of a text, as they are served by
        default. A regression has none: values are never quite equal.
        """
        if self.traits.task == "regression":
            return None
        return np.stack([self.numbered(logits) for logits in self.logits])

    @cached_property
    def right(self) -> NDArray[np.bool_] | None:
        """(exits, rows) whether each exit's answer is correct; None if that cannot be said."""
        if self.gold is None or self.traits.task == "regression":
            return None
        return np.stack([right_answers(self.traits, each, self.gold) for each in self.logits])

    def same(self, tolerance: float | None = None) -> NDArray[np.bool_]:
        """Return (exits, rows) whether each exit gives full depth's answer.

        Args:
            tolerance: of a regression: values further apart differ; NaN is near nothing.
        """
        if self.answers is not None:
            return self.answers == self.answers[-1]
        values = self.logits[..., 0].astype(np.float64)
        return np.abs(values - values[-1]) <= (tolerance or 0.0)

    def agrees(self, taken: Taken) -> NDArray[np.bool_] | None:
        """Return (rows,) whether rows leave with full depth's answer; None for a regression."""
        if self.answers is None:
            return None
        if self.by_the_exits(taken):
            own = self.answers[taken.exits, np.arange(self.num_rows)]
        else:
            own = self.numbered(taken.deciding)
        return own == self.answers[-1]

    def by_the_exits(self, taken: Taken) -> bool:
        """Whether every row leaves with what the exit itself says, not with a vote or a mean."""
        own = self.logits[taken.exits, np.arange(self.num_rows)]
        return np.array_equal(own, taken.deciding, equal_nan=True)

    def numbered(self, logits: Logits) -> Ids:
        """Return (rows,) answers to the same texts as numbers, see `answers`."""
        known = self._known
        answers = read_answers(self.traits, logits, self.counted)
        return np.array([known.setdefault(answer, len(known)) for answer in answers], np.int64)

    @cached_property
    def _known(self) -> dict[Hashable, int]:
        return {}
