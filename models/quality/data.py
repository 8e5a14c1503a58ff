"""Texts that measure a model: labelled files, and the texts of a calibration."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from models.data.columns import KNOWN, Columns
from models.data.datasets import read_dataset
from models.data.examples import Example, Target
from models.data.label_ids import listed_names, match_names
from models.data.unlabelled import read_unlabelled
from serve.bundle.loader import sha256_of
from serve.bundle.manifest import Manifest
from serve.policy.ladder import Data
from serve.rules.traits import Traits
from serve.tokenization.tokenizer import Text

# Differs from other uses of the same hash, such as holding sentences out of training.
_SALT = b"tuning or certifying\0"


class LabelledData(NamedTuple):
    """The rows of a file.

    Attributes:
        examples: with label ids of the model.
        note: how labels were matched, where that is worth saying.
    """

    examples: list[Example]
    note: str = ""


def read_for(path: Path, traits: Traits, columns: Columns = KNOWN) -> LabelledData:
    """Read a labelled file for a model.

    The names in `labels.json` beside the file count where they are the model's, in any order and
    case. Other names, as many, are taken by place: imported checkpoints call theirs LABEL_0.

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


class LabelledText(NamedTuple):
    """A text, or a pair, with the correct answer; None where labels are not used."""

    text: Text
    label: Target | None


class TextFile(NamedTuple):
    """The texts of a data file, or what is left of them."""

    path: Path
    texts: list[LabelledText]

    @property
    def data(self) -> Data:
        """The file as certificates name it."""
        return data_of(self.path, len(self.texts))


def read_file(path: Path, manifest: Manifest, labelled: bool, columns: Columns = KNOWN) -> TextFile:
    """Read a file for the calibration of a bundle.

    Args:
        path: the file.
        manifest: names task and labels.
        labelled: whether to read labels.
        columns: those that the user names.

    Raises:
        UnusableData: an unreadable file, or a line that does not fit the task.
    """
    if not labelled:
        texts = read_unlabelled(path, columns)
        return TextFile(path, [LabelledText(text, None) for text in texts])
    examples = read_dataset(path, manifest.task, manifest.labels, columns).examples
    return TextFile(path, [LabelledText(Text(e.text_a, e.text_b), e.label) for e in examples])


def texts_in(files: Iterable[TextFile]) -> list[LabelledText]:
    """Return the texts of all files, in order."""
    return [each for file in files for each in file.texts]


def distinct(files: Iterable[TextFile], known: Iterable[LabelledText] = ()) -> list[TextFile]:
    """Return the files with each text where it stands first, and without known texts."""
    seen, left = {each.text for each in known}, []
    for file in files:
        fresh: dict[Text, LabelledText] = {}
        for each in file.texts:
            if each.text not in seen:
                fresh.setdefault(each.text, each)
        left.append(TextFile(file.path, list(fresh.values())))
        seen |= fresh.keys()
    return left


def split(
    texts: Sequence[LabelledText], tuning_share: float
) -> tuple[list[LabelledText], list[LabelledText]]:
    """Split distinct texts by their hash into those that tune and those that certify.

    The same text is always on the same side.
    """
    tuning = [each for each in texts if _position(each.text) < tuning_share]
    return tuning, [each for each in texts if _position(each.text) >= tuning_share]


def _position(text: Text) -> float:
    """Return a number from 0 up to, not including, 1 that only the text decides."""
    content = "\0".join(part for part in text if part is not None)
    digest = hashlib.sha256(_SALT + content.encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48
