"""Whether the labels of a flag are surely above their thresholds, or surely below."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from serve.errors import InvalidRule
from serve.rules.criterion import Criterion, FreshColumns, HeadOutput, Judgement, RowsAtExit
from serve.rules.rule import PROBABILITIES, Rule, Share
from serve.rules.signals import probabilities
from serve.rules.traits import Task, Traits, flaggable, listed, name_of, tags_of

_MOST_LABELS = 1000
_Bounds = Annotated[dict[str, Share], Field(min_length=1, max_length=_MOST_LABELS)]


class DecisionRule(Rule):
    """Leave when it is sure whether a flag's labels reach their thresholds.

    Offramp's own, for guards, which need a yes or no and not a label. Each side stands for itself:
    a guard may leave early for "unsafe" only, and run to the end for "safe".
    """

    tasks: ClassVar[tuple[Task, ...]] = PROBABILITIES

    rule: Literal["decision"] = "decision"
    leave_above: _Bounds | None = Field(
        default=None,
        description="Bounds by label: leave when the score of any of these labels reaches its "
        "bound.",
    )
    leave_below: _Bounds | None = Field(
        default=None,
        description="Bounds by label: leave when the scores of all these labels are at most their "
        "bounds.",
    )

    @model_validator(mode="after")
    def _check_sides(self) -> "DecisionRule":
        above, below = self.leave_above or {}, self.leave_below or {}
        if not above and not below:
            raise ValueError("give leave_above, leave_below, or both: bounds by label")
        if below and (lacking := [label for label in above if label not in below]):
            raise ValueError(
                f"leave_below lacks {lacking[0]!r} of leave_above: a text leaves below only if no "
                "label can flag it any more; add it, or leave leave_below out"
            )
        if crossed := [label for label in above if below.get(label, 0) > above[label]]:
            raise ValueError(
                f"{crossed[0]!r} leaves below {below[crossed[0]]:g} and above "
                f"{above[crossed[0]]:g}: a score between them would leave both ways; leave_below "
                "must be the lower one"
            )
        return self

    def __hash__(self) -> int:
        sides = (frozenset((side or {}).items()) for side in (self.leave_above, self.leave_below))
        return hash((self.min_layer, self.max_layer, *sides))

    def check(self, traits: Traits) -> None:
        super().check(traits)
        for before in ("table", "small"):
            if getattr(self, before) is not None:
                raise InvalidRule(
                    f"{before}: rule decision is about a flag, which is decided by exits alone; "
                    "leave it out"
                )
        known = flaggable(traits)
        named = {**(self.leave_above or {}), **(self.leave_below or {})}
        if unknown := next((label for label in named if label not in known), None):
            raise InvalidRule(f"no label {unknown[:64]!r}; the model has {listed(known)}")

    def surely_leave(self, traits: Traits) -> tuple[bool | None, ...]:
        above, below = self.leave_above or {}, self.leave_below or {}
        covered = bool(below) and all(above.get(label, 1) <= below[label] for label in below)
        together = sum(above.get(label, 1.0) for label in traits.labels)
        leads = traits.task == "single_label" and together <= 1
        if covered or leads or 0 in above.values():
            found: bool | None = True
        else:
            none_above = all(bound == 1 for bound in above.values())
            found = False if none_above and (not below or 0 in below.values()) else None
        return (found,) * len(traits.exits)

    def criterion(self, traits: Traits) -> Criterion:
        return SureDecision(traits.task, traits.labels)

    def columns(self, traits: Traits) -> FreshColumns:
        above, below = self.leave_above or {}, self.leave_below or {}
        names = [name_of(x) for x in traits.labels] if traits.task == "token" else traits.labels
        # Labels that are not named keep no row; without leave_below nothing is low enough.
        other = np.inf if below else -np.inf
        temperatures = traits.score_temperatures or ((1.0,),) * len(traits.exits)
        temperatures = temperatures[-len(traits.exits) :]  # not the table's
        return {
            "score_temperatures": np.array(temperatures, np.float32),
            "leave_above": np.array([above.get(name, np.inf) for name in names], np.float32),
            "leave_below": np.array([below.get(name, other) for name in names], np.float32),
        }


@dataclass(frozen=True)
class SureDecision(Criterion):
    """Any label that is surely high, or all of them surely low.

    Attributes:
        task: the model's task.
        labels: the model's labels.
    """

    task: Task
    labels: tuple[str, ...]

    def judge(self, rows: RowsAtExit, head: HeadOutput) -> Judgement:
        above, below = rows["leave_above"], rows["leave_below"]
        temperatures = rows.at_exit("score_temperatures")  # (rows, labels or 1)
        if self.task == "token":
            temperatures = temperatures[:, None]
        high = low = probabilities(self.task, head.logits / temperatures)  # (rows, labels)
        if head.counted is not None:
            high, low = self._of_entities(low, head.counted), _of_tokens(low, head.counted)
        unknown = np.isnan(low)
        above_any = np.logical_or.reduce(high >= above, axis=1)
        below_all = np.logical_and.reduce(low <= below, axis=1)
        sure: NDArray[np.bool_] = (above_any | below_all) & ~unknown.any(axis=1)
        if head.counted is not None:
            sure &= np.logical_or.reduce(head.counted, axis=1)
        read = np.isfinite(above) | np.isfinite(below) | unknown
        return Judgement(sure, np.where(read, low, np.float32(0)).max(axis=1))

    def _of_entities(
        self, p: NDArray[np.float32], counted: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Return (rows, labels) the highest score of an entity of each label's kind, else 0."""
        tags, (row, token) = tags_of(self.labels), counted.nonzero()
        highest = np.zeros((len(p), len(self.labels)), np.float32)
        if not len(row):
            return highest
        own = p[row, token]
        labels = own.argmax(axis=1)
        first = tags.firsts(labels, row)
        lengths = np.diff(np.append(first, len(own)))
        scores = np.add.reduceat(own[np.arange(len(own)), labels], first) / lengths
        np.maximum.at(highest, (row[first], tags.kinds[labels[first]]), scores)
        return highest[:, tags.kinds]


def _of_tokens(p: NDArray[np.float32], counted: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return (rows, labels) each label's highest probability at any token that counts, else 0."""
    highest: NDArray[np.float32] = np.where(counted[..., None], p, np.float32(0)).max(axis=1)
    return highest
