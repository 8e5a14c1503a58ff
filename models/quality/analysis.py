"""A model on a data file: what its exits said, and what every rule makes of that."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from models.data.examples import Example
from models.data.unlabelled import without_label
from models.quality.costs import LAYERS, Costs
from models.quality.data import LabelledData, data_of
from models.quality.model import Model
from models.quality.points import (
    LADDER,
    PROFILES,
    STATIC,
    Gain,
    Point,
    gain,
    pareto_front,
    points_of,
)
from models.quality.recorded import Recorded, inputs, recorded
from models.quality.reference import ReferenceAnswers
from models.quality.rule_families import headline_family
from models.quality.scores import main_metric
from serve.policy.ladder import Data
from serve.rules.traits import Traits
from serve.tokenization.tokenizer import Text


@dataclass(frozen=True, eq=False)
class Analysis:
    """All that a report says of a model on a data file.

    Attributes:
        model: the model.
        data: the file.
        examples: its rows.
        recorded: what every exit said of them.
        costs: by unit.
        given: what every exit said of texts that the caller gave, whose correct answers are not
            known; with the texts.
        note: how labels were matched, where that is worth saying.
        reference: what another classifier says of the rows; None without one.
    """

    model: Model
    data: Data
    examples: Sequence[Example]
    recorded: Recorded
    costs: Costs
    given: tuple[Sequence[Example], Recorded] | None = None
    note: str = ""
    reference: ReferenceAnswers | None = None

    @cached_property
    def points(self) -> dict[str, list[Point]]:
        """Every rule that was tried, by family."""
        return points_of(self.model, self.recorded, self.costs, self.data.name)

    @property
    def metric(self) -> str:
        """The task's main metric; of GLUE's tasks, GLUE's own."""
        return main_metric(self.recorded.traits, self.data.name)

    @property
    def exits(self) -> tuple[int, ...]:
        """Where texts can leave: layer 0, if there is a table, and the exit layers."""
        return self.recorded.traits.layers

    @property
    def families(self) -> dict[str, list[Point]]:
        """The families of rules that make a curve, the one to judge by first."""
        judge_by = headline_family(self.recorded, self.model.trained_for)
        names = [name for name in self.points if name not in (STATIC, PROFILES, LADDER)]
        return {name: self.points[name] for name in sorted(names, key=lambda n: n != judge_by)}

    @property
    def headline(self) -> str | None:
        """The family to judge by; None for a model with a single exit."""
        return next(iter(self.families), None)

    @property
    def full(self) -> Point:
        """Every text at full depth."""
        return self.points[STATIC][-1]

    def front(self, unit: str = LAYERS) -> list[Point]:
        """Return the best points of all rules, cheap first."""
        every = [point for points in self.points.values() for point in points]
        return pareto_front(every, unit)

    @cached_property
    def gains(self) -> dict[str, Gain]:
        """What each family gains over stopping every text at the same layer."""
        return {name: gain(own, self.points[STATIC]) for name, own in self.families.items()}


def analyse(
    model: Model,
    path: Path,
    file: LabelledData,
    texts: Sequence[str],
    advance: Callable[[int], None] = lambda rows: None,
) -> Analysis:
    """Run a model once on a data file, and on further texts.

    Args:
        model: any.
        path: of the file.
        file: its rows, with the model's labels.
        texts: whose correct answers are not known; of a pair, a tab stands between the two.
        advance: called with numbers of rows that have been run.
    """
    count, given = len(file.examples), [_given(text, model.source.traits) for text in texts]
    found = recorded(model.source, *inputs([*file.examples, *given]), advance)
    own = found.of(slice(count))
    return Analysis(
        model=model,
        data=data_of(path, count),
        examples=file.examples,
        recorded=own,
        costs=model.costs(own.num_tokens),
        given=(given, found.of(slice(count, None))) if given else None,
        note=file.note,
    )


def _given(text: str, traits: Traits) -> Example:
    """Return a text with a label that means nothing, in the form of the task's labels."""
    if traits.task == "token":
        return without_label(Text(text), traits.task)
    first, _, second = text.partition("\t")
    return Example(
        first, second or None, (0.0,) * len(traits.labels) if traits.task == "multi_label" else 0
    )
