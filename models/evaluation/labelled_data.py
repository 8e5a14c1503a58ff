"""A data file whose labels fit a model."""

import re
from pathlib import Path
from typing import NamedTuple

from models.data.columns import KNOWN, Columns
from models.data.datasets import read_dataset
from models.data.examples import Example, Target, Word
from models.data.label_ids import listed_names, match_names
from serve.bundle.loader import sha256_of
from serve.policy.ladder import Data
from serve.rules.traits import Task, Traits


class LabelledData(NamedTuple):
    """The rows of a file.

    Attributes:
        examples: with label ids of the model.
        note: how labels were matched, where that is worth saying.
    """

    examples: list[Example]
    note: str = ""


def read_for(path: Path, traits: Traits, columns: Columns = KNOWN) -> LabelledData:
    """Read a file for a model.

    The names in `labels.json` beside the file count where they are the model's, in any order and
    case.
    Other names, as many, are taken by place: imported checkpoints call theirs LABEL_0.

    Raises:
        UnusableData: the file is unreadable, empty or of another task, or its labels are not the
            model's.
    """
    examples = read_dataset(path, traits.task, traits.labels, columns).examples
    if traits.task == "regression":
        return LabelledData(examples)
    names = listed_names(path) or traits.labels
    return LabelledData(examples, match_names(path, names, traits.labels)[1])


def data_of(path: Path, rows: int) -> Data:
    """Return a file as reports and certificates name it."""
    name = f"{path.resolve().parent.name}/{path.name}"
    return Data(name=name, rows=rows, sha256=sha256_of(path))


def unlabelled(text: str, task: Task, num_labels: int) -> Example:
    """Return a text with a label that means nothing; of a pair, a tab stands between the two.

    A tagger's words are what stands between blanks.
    """
    if task == "token":
        words = [Word(found.start(), found.end(), 0) for found in re.finditer(r"\S+", text)]
        return Example(text, None, words)
    first, _, second = text.partition("\t")
    empty: dict[Task, Target] = {
        "single_label": 0,
        "multi_label": (0.0,) * num_labels,
        "regression": 0.0,
    }
    return Example(first, second or None, empty[task])
