"""Keep whole sentences of a phrase-labelled treebank out of training.

`python -m models.data.hold_out TRAIN.tsv --out FOLDER`. SST-2's training file holds sentences and
the phrases they consist of. A sentence is unseen only if none of its phrases was trained on either.
It also splits a file of whole texts, such as AG News.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from models.data.lines import read_lines
from models.data.rows import read_rows


class Split(NamedTuple):
    """Lines of a file.

    Attributes:
        kept: texts that are no part of any held-out sentence.
        held_out: the sentences.
    """

    kept: list[str]
    held_out: list[str]


def split_sentences(texts: Iterable[str], count: int) -> Split:
    """Hold out sentences, chosen by the hash of their text.

    Args:
        texts: sentences, and phrases of them; words are separated by blanks, of which one is as
            good as several.
        count: how many sentences to hold out.
    """
    known = list(dict.fromkeys(map(_plain, texts)))
    parts = {part for text in known for part in _parts(text) if part != text}
    sentences = [text for text in known if text not in parts]
    held_out = sorted(sentences, key=lambda text: hashlib.sha256(text.encode()).digest())[:count]
    unseen = {part for text in held_out for part in _parts(text)}
    return Split([text for text in known if text not in unseen], held_out)


def main(
    data: Annotated[Path, typer.Argument(help="A .tsv with labels and single texts.")],
    out: Annotated[Path, typer.Option(help="Folder for train.tsv and held-out.tsv.")],
    sentences: Annotated[int, typer.Option(min=1, help="How many to hold out.")] = 1500,
) -> None:
    """Split a file into training rows and held-out sentences."""
    header, *lines = (line.rstrip("\r\n") for _, line in read_lines(data))
    rows = read_rows(data, None)
    if any(row.text_b or "\n" in row.text_a for row in rows):
        raise typer.BadParameter(f"{data}: pairs and texts of several lines cannot be split")
    split = split_sentences([row.text_a for row in rows], sentences)
    out.mkdir(parents=True, exist_ok=True)
    for name, texts in (("train.tsv", set(split.kept)), ("held-out.tsv", set(split.held_out))):
        chosen = [lines[row.line - 2] for row in rows if _plain(row.text_a) in texts]
        (out / name).write_text("\n".join([header, *chosen]) + "\n", "utf-8")
        typer.echo(f"{out / name}: {len(chosen)} rows")


def _plain(text: str) -> str:
    """Return a text with single blanks: one with other blanks is the same text."""
    return " ".join(text.split())


def _parts(text: str) -> Iterator[str]:
    """Yield every contiguous part of a text, the text itself among them."""
    words = text.split()
    for start in range(len(words)):
        for stop in range(start + 1, len(words) + 1):
            yield " ".join(words[start:stop])


if __name__ == "__main__":
    typer.run(main)
