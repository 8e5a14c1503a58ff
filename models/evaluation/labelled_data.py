"""A data file whose labels fit a model."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from models.data.datasets import read_dataset
from models.data.examples import Example, Target, Word
from models.data.labels import labels_file
from models.errors import UnusableData
from serve.rules.traits import Task, Traits, listed


class LabelledData(NamedTuple):
    """The rows of a file.

    Attributes:
        examples: with label ids of the model.
        note: how labels were matched, where that is worth saying.
    """

    examples: list[Example]
    note: str = ""


def read_for(path: Path, traits: Traits) -> LabelledData:
    """Read a file for a model.

    The names in `labels.json` beside the file count where they are the model's, in any order.
    Other names, as many, are taken by place: imported checkpoints call theirs LABEL_0.

    Raises:
        UnusableData: the file is unreadable, empty or of another task, or its labels are not the
            model's.
    """
    own, named = list(traits.labels), _named(path)
    if traits.task == "regression" or not named or named == own:
        return LabelledData(read_dataset(path, traits.task, own).examples)
    if len(named) != len(own):
        raise UnusableData(
            f"{path}: labels.json beside it has {len(named)} labels ({listed(named)}), the model "
            f"has {len(own)} ({listed(own)}); measure a model on data with its own labels"
        )
    examples = read_dataset(path, traits.task, named).examples
    if set(named) != set(own):
        pairs = listed(f"{theirs} is {ours}" for theirs, ours in zip(named, own, strict=True))
        return LabelledData(examples, f"Labels were taken by their place: {pairs}.")
    places = [own.index(name) for name in named]
    return LabelledData([e._replace(label=_moved(e.label, places)) for e in examples])


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


def _named(path: Path) -> list[str]:
    return [str(name) for name in labels_file(path).get("labels", [])]


def _moved(label: Target, places: Sequence[int]) -> Target:
    """Return a label with the model's ids in the place of the file's."""
    if isinstance(label, list):
        return [Word(word.start, word.end, places[word.tag]) for word in label]
    if isinstance(label, tuple):
        return tuple(mark for _, mark in sorted(zip(places, label, strict=True)))
    return places[int(label)]
