"""Texts that measure a model: labelled files, and the texts of a calibration."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from models.data.columns import KNOWN, Columns
from models.data.datasets import read_dataset
from models.data.examples import Example, Target
from models.data.label_ids import listed_names, match_names
from models.data.unlabelled import read_unlabelled
from models.quality.source import read_tokens
from serve.bundle.loader import Bundle, sha256_of
from serve.policy.ladder import Data
from serve.rules.traits import Traits
from serve.tokenization.tokenizer import Text, Tokens

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
    """A text, or a pair, with the correct answer; None where labels are not used.

    Texts with the same hash of their tokens are the same text to the model.
    """

    text: Text
    label: Target | None
    tokens: int = 0


class TextFile(NamedTuple):
    """The texts of a data file, or what is left of them."""

    path: Path
    texts: list[LabelledText]

    @property
    def data(self) -> Data:
        """The file as certificates name it."""
        return data_of(self.path, len(self.texts))


def read_file(path: Path, bundle: Bundle, labelled: bool, columns: Columns = KNOWN) -> TextFile:
    """Read a file for the calibration of a bundle.

    Args:
        path: the file.
        bundle: names task and labels, and reads tokens.
        labelled: whether to read labels.
        columns: those that the user names.

    Raises:
        UnusableData: an unreadable file, or a line that does not fit the task.
        InvalidRequest: a text has no tokens, or is a pair that the model does not take.
    """
    manifest, labels = bundle.manifest, list[Target | None]()
    if labelled:
        examples = read_dataset(path, manifest.task, manifest.labels, columns).examples
        texts, labels = [Text(e.text_a, e.text_b) for e in examples], [e.label for e in examples]
    else:
        texts = read_unlabelled(path, columns)
    hashes = token_hashes(read_tokens(bundle, texts))
    return TextFile(path, list(map(LabelledText, texts, labels or repeat(None), hashes)))


def token_hashes(tokens: Iterable[Tokens]) -> list[int]:
    """Return 8 bytes of a hash of each text's tokens, as numbers."""
    contents = (each.input_ids.tobytes() + each.token_type_ids.tobytes() for each in tokens)
    return [int.from_bytes(hashlib.sha256(content).digest()[:8]) for content in contents]


def texts_in(files: Iterable[TextFile]) -> list[LabelledText]:
    """Return the texts of all files, in order."""
    return [each for file in files for each in file.texts]


def distinct(files: Iterable[TextFile], known: Iterable[LabelledText] = ()) -> list[TextFile]:
    """Return the files with each text where it stands first, and without known texts."""
    seen, left = {each.tokens for each in known}, []
    for file in files:
        fresh: dict[int, LabelledText] = {}
        for each in file.texts:
            if each.tokens not in seen:
                fresh.setdefault(each.tokens, each)
        left.append(TextFile(file.path, list(fresh.values())))
        seen |= fresh.keys()
    return left


def split(
    texts: Sequence[LabelledText], tuning_share: float
) -> tuple[list[LabelledText], list[LabelledText]]:
    """Split texts by their hash into those that tune and those that certify.

    A text of which there is one is always on the same side. Each further one with the same tokens
    has a place of its own, so that both sides have as many as come by chance.
    """
    sides: tuple[list[LabelledText], list[LabelledText]] = [], []
    often = Counter[int]()
    for each in texts:
        sides[position(each.text, often[each.tokens]) >= tuning_share].append(each)
        often[each.tokens] += 1
    return sides


def position(text: Text, nth: int = 0) -> float:
    """Return a number from 0 up to, not including, 1 for the nth of equal texts."""
    content = "\0".join(part for part in text if part is not None)
    content += f"\0\0{nth}" if nth else ""
    digest = hashlib.sha256(_SALT + content.encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48
