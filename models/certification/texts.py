"""The texts of a calibration: read, each distinct one once, and split by hash."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from models.data.columns import KNOWN, Columns
from models.data.datasets import read_dataset
from models.data.examples import Target
from models.data.unlabelled import read_unlabelled
from models.quality.data import data_of
from serve.bundle.manifest import Manifest
from serve.policy.ladder import Data
from serve.tokenization.tokenizer import Text

# Differs from other uses of the same hash, such as holding sentences out of training.
_SALT = b"tuning or certifying\0"


class LabelledText(NamedTuple):
    """A text, or a pair, with the correct answer; None where labels are not used."""

    text: Text
    label: Target | None


class TextFile(NamedTuple):
    """A data file's texts.

    Attributes:
        path: of the file.
        texts: as in the file, or what is left of them.
    """

    path: Path
    texts: list[LabelledText]

    @property
    def data(self) -> Data:
        """The file as certificates name it."""
        return data_of(self.path, len(self.texts))


def read_file(path: Path, manifest: Manifest, labelled: bool, columns: Columns = KNOWN) -> TextFile:
    """Read a data file for a bundle.

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
    seen = {each.text for each in known}
    left = []
    for file in files:
        kept = []
        for each in file.texts:
            if each.text not in seen:
                seen.add(each.text)
                kept.append(each)
        left.append(TextFile(file.path, kept))
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
