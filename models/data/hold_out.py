"""Keep whole sentences of a phrase-labelled treebank, or pairs of texts, out of training.

`python -m models.data.hold_out TRAIN.tsv --out FOLDER`. SST-2's training file holds sentences and
the phrases they consist of. A sentence is unseen only if none of its phrases was trained on either.
It also splits a file of whole texts, such as AG News, and of pairs, such as MRPC: a pair is unseen
only if neither of its texts was trained on.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from models.data.lines import read_lines
from models.data.records import holds_json, read_records
from models.data.rows import Row, read_rows


class Split(NamedTuple):
    """Texts of a file, or pairs with a tab between the two.

    Attributes:
        kept: no part of any held-out sentence; pairs that share no text with a held-out one.
        held_out: the sentences, or the pairs.
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
    held_out = _first_by_hash(sentences, count)
    unseen = {part for text in held_out for part in _parts(text)}
    return Split([text for text in known if text not in unseen], held_out)


def split_pairs(pairs: Iterable[str], count: int) -> Split:
    """Hold out pairs, chosen by the hash of their texts; others that share a text with them go.

    Args:
        pairs: with a tab between the two texts.
        count: how many to hold out.
    """
    known = list(dict.fromkeys(pairs))
    held_out = _first_by_hash(known, count)
    unseen = {text for pair in held_out for text in pair.split("\t")}
    return Split([pair for pair in known if unseen.isdisjoint(pair.split("\t"))], held_out)


def main(
    data: Annotated[Path, typer.Argument(help="A .tsv with labels and texts, or pairs of texts.")],
    out: Annotated[Path, typer.Option(help="Folder for train.tsv and held-out.tsv.")],
    count: Annotated[int, typer.Option(min=1, help="How many to hold out.")] = 1500,
) -> None:
    """Split a file into training rows, and held-out sentences or pairs."""
    if data.suffix.lower() not in (".tsv", ".txt") or holds_json(data):
        raise typer.BadParameter(f"{data}: only tab-separated files are split")
    header, lines = lines_of_rows(data)
    rows = read_rows(data, None)
    split = split_pairs if any(row.text_b for row in rows) else split_sentences
    kept, held_out = split(map(_text, rows), count)
    out.mkdir(parents=True, exist_ok=True)
    for name, texts in (("train.tsv", set(kept)), ("held-out.tsv", set(held_out))):
        chosen = [lines[row.line] for row in rows if _text(row) in texts]
        (out / name).write_text("\n".join([*header, *chosen]) + "\n", "utf-8")
        typer.echo(f"{out / name}: {len(chosen)} rows")


def lines_of_rows(path: Path) -> tuple[list[str], dict[int, str]]:
    """Return a table's header, empty if it has none, and each row's lines by its line number."""
    lines = [line.rstrip("\r\n") for _, line in read_lines(path)]
    records = list(read_records(path))
    # A file without a header has its names from elsewhere, and its first row in that line.
    header = [lines[r.header - 1] for r in records[:1] if r.header < r.line]
    rows = {}
    for record in records:
        num_lines = 1 + sum(str(value).count("\n") for value in record.values.values())
        rows[record.line] = "\n".join(lines[record.line - 1 : record.line - 1 + num_lines])
    return header, rows


def _text(row: Row) -> str:
    """Return a row's text, or both with a tab between."""
    return "\t".join(_plain(text) for text in (row.text_a, row.text_b) if text is not None)


def _first_by_hash(texts: list[str], count: int) -> list[str]:
    return sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())[:count]


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
