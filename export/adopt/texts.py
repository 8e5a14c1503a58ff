"""The parts of the texts: some teach the exits, some measure them, some calibrate."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from models.data.alignment import IGNORED
from models.data.columns import Columns
from models.data.unlabelled import read_unlabelled, without_label
from models.errors import UnusableData
from models.quality.recorded import Recorded, inputs, recorded
from models.quality.source import Source
from serve.rules.signals import decisions
from serve.tokenization.tokenizer import Text

# Of calibrating texts, a third chooses rules; 300 others allow a bound of 1 %.
LEAST_CALIBRATING, MOST_CALIBRATING, CALIBRATING_SHARE = 450, 15_000, 0.45
LEAST_MEASURING, MOST_MEASURING, MEASURING_SHARE = 50, 500, 0.05
# More texts than the most teach heads on frozen layers nothing that shows.
LEAST_TEACHING, MOST_TEACHING = 200, 20_000
LEAST = LEAST_CALIBRATING + LEAST_MEASURING + LEAST_TEACHING


class Parts(NamedTuple):
    """Texts, the same in one part only; a text of a calibrating pair is in no other part either.

    Attributes:
        teaching: exits learn the classifier's answers to these.
        measuring: every exit is measured on these after each pass of the training.
        calibrating: choose rules and certify them.
    """

    teaching: list[Text]
    measuring: list[Text]
    calibrating: list[Text]


def read(paths: Sequence[Path], columns: Columns) -> list[Text]:
    """Read texts of traffic from all files.

    Raises:
        UnusableData: a file cannot be read, or they are fewer than `LEAST`.
    """
    texts = [text for path in paths for text in read_unlabelled(path, columns)]
    if len(texts) < LEAST:
        raise UnusableData(
            f"--texts: {len(texts)} texts are too few: {LEAST} are the least "
            f"({LEAST_CALIBRATING} certify, {LEAST_MEASURING} measure, the others teach), and "
            "5,000 allow much faster rules"
        )
    return texts


def split(texts: Sequence[Text], hashes: Sequence[int]) -> Parts:
    """Split texts by their hash, so that another run makes the same parts.

    Args:
        texts: a draw of traffic, at least `LEAST`; those that come often calibrate as often as
            they come.
        hashes: of each text's tokens, by which texts are the same to the model.

    Raises:
        UnusableData: too few do not calibrate.
    """
    often, rows = Counter[int](), []
    for text, tokens in zip(texts, hashes, strict=True):
        rows.append((_digest(text, often[tokens]), text, tokens))
        often[tokens] += 1
    rows.sort(key=itemgetter(0))
    num_calibrating = _share(rows, CALIBRATING_SHARE, LEAST_CALIBRATING, MOST_CALIBRATING)
    calibrating = [text for _, text, _ in rows[:num_calibrating]]
    known = {tokens for _, _, tokens in rows[:num_calibrating]}
    parts = {part for text in calibrating for part in text if part}
    others = {
        tokens: text
        for _, text, tokens in reversed(rows[num_calibrating:])
        if tokens not in known and parts.isdisjoint(part for part in text if part)
    }
    fresh = list(others.values())[::-1]
    num_measuring = _share(rows, MEASURING_SHARE, LEAST_MEASURING, MOST_MEASURING)
    measuring, teaching = fresh[:num_measuring], fresh[num_measuring:][:MOST_TEACHING]
    if len(teaching) < LEAST_TEACHING:
        raise UnusableData(
            f"--texts: {len(teaching)} texts are left to teach the exits, because the others "
            "repeat texts that certify, or are pairs that share a text with these; "
            f"{LEAST_TEACHING} are the least: give more texts"
        )
    return Parts(teaching, measuring, calibrating)


def write_texts(path: Path, texts: Sequence[Text]) -> None:
    """Write texts as JSON lines without labels, which every command reads."""
    _write(path, map(_fields, texts))


def write_answers(path: Path, source: Source, texts: Sequence[Text]) -> None:
    """Write texts as JSON lines with a classifier's own answers for labels.

    Raises:
        InvalidRequest: a text that the model does not take, such as a pair.
    """
    examples = [without_label(text, source.traits.task) for text in texts]
    found = recorded(source, *inputs(examples))
    _write(path, _answered(found, texts))


def _answered(found: Recorded, texts: Sequence[Text]) -> Iterator[dict[str, object]]:
    traits = found.traits
    labels, answers = traits.labels, decisions(traits.task, found.logits[-1])
    for row, text in enumerate(texts):
        answer = answers[row]
        if traits.task == "token":
            assert found.gold is not None
            tags = answer[np.asarray(found.gold[row]) != IGNORED]  # where words begin
            words = text.text.split()[: len(tags)]
            yield {"tokens": words, "tags": [labels[tag] for tag in tags]}
        elif traits.task == "multi_label":
            named = [label for label, mark in zip(labels, answer, strict=True) if mark]
            yield _fields(text) | {"labels": named}
        elif traits.task == "regression":
            yield _fields(text) | {"score": float(found.logits[-1][row, 0])}
        else:
            yield _fields(text) | {"label": labels[int(answer)]}


def _fields(text: Text) -> dict[str, object]:
    pair = {} if text.text_pair is None else {"text_pair": text.text_pair}
    return {"text": text.text, **pair}


def _write(path: Path, rows: Iterable[dict[str, object]]) -> None:
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), "utf-8")


def _share(texts: Sequence[object], share: float, least: int, most: int) -> int:
    return min(most, max(least, round(share * len(texts))))


def _digest(text: Text, nth: int) -> bytes:
    """Return what orders the nth of equal texts."""
    content = "\0".join(part for part in text if part is not None)
    content += f"\0\0{nth}" if nth else ""
    return hashlib.sha256(b"adopt\0" + content.encode()).digest()
