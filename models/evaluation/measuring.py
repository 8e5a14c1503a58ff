"""Running models on data files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from models.data.columns import KNOWN, Columns
from models.data.examples import Example
from models.evaluation.labelled_data import read_for, unlabelled
from models.evaluation.observation import Observation
from models.evaluation.predictions import Predictions
from models.evaluation.subjects.measurable import Advance, Measurable, Pass
from serve.bundle.loader import sha256_of
from serve.policy.ladder import Data


class Measured(NamedTuple):
    """A model on a data file.

    Attributes:
        observed: the data.
        given: texts that the caller gave, whose correct answers are not known.
        note: how labels were matched, where that is worth saying.
    """

    observed: Observation
    given: Observation | None
    note: str


class WorkItem(NamedTuple):
    """A model, a data file that fits it, and further texts.

    Attributes:
        examples: the file's rows, then the given texts.
        num_given: how many of them are given texts.
    """

    model: Measurable
    data: Data
    examples: Sequence[Example]
    num_given: int
    note: str


def plan(
    models: Sequence[Measurable],
    files: Sequence[Path],
    given: Sequence[str],
    columns: Columns = KNOWN,
) -> list[WorkItem]:
    """Read every file for every model, before any of them is run.

    Raises:
        UnusableData: a file does not fit a model.
    """
    return [_item(model, path, given, columns) for model in models for path in files]


def measure(item: WorkItem, advance: Advance) -> Measured:
    """Run a model on its texts once, through all exits."""
    found = item.model.run(item.examples, advance)
    count = len(item.examples) - item.num_given
    rows, extra = slice(0, count), slice(count, None)
    observed = _observation(item, found, rows)
    return Measured(
        replace(observed, costs=item.model.costs(observed.num_tokens)),
        _observation(item, found, extra) if item.num_given else None,
        item.note,
    )


def _item(model: Measurable, path: Path, given: Sequence[str], columns: Columns) -> WorkItem:
    examples, note = read_for(path, model.traits, columns)
    name = f"{path.resolve().parent.name}/{path.name}"
    data = Data(name=name, rows=len(examples), sha256=sha256_of(path))
    extra = [unlabelled(text, model.traits.task, len(model.traits.labels)) for text in given]
    return WorkItem(model, data, [*examples, *extra], len(extra), note)


def _observation(item: WorkItem, found: Pass, rows: slice) -> Observation:
    model = item.model
    return Observation(
        subject=model.subject,
        data=item.data,
        examples=item.examples[rows],
        predictions=_part(found.predictions, rows),
        temperatures=model.temperatures,
        num_tokens=found.num_tokens[rows],
        costs={},
    )


def _part(predictions: Predictions, rows: slice) -> Predictions:
    """Return what was said of some of the rows."""
    in_text, uncertainty = predictions.in_text, predictions.uncertainty
    return predictions._replace(
        logits=predictions.logits[:, rows],
        gold=predictions.gold[rows],
        in_text=None if in_text is None else in_text[rows],
        uncertainty=None if uncertainty is None else uncertainty[:, rows],
    )
