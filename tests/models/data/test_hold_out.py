"""Held-out sentences: none of their phrases is left to train on."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.hold_out import lines_of_rows, split_pairs, split_sentences

TEXTS = st.lists(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=5).map(" ".join), min_size=1, max_size=12
)


def is_part(phrase: str, text: str) -> bool:
    return f" {phrase} " in f" {text} "


@given(texts=TEXTS, count=st.integers(1, 4))
def test_no_phrase_of_a_held_out_sentence_is_kept_and_all_other_texts_are(
    texts: list[str], count: int
) -> None:
    kept, held_out = split_sentences(texts, count)
    sentences = {t for t in texts if not any(is_part(t, other) for other in {*texts} - {t})}
    assert set(held_out) <= sentences
    assert len(held_out) == min(count, len(sentences))
    seen = {text for text in texts if not any(is_part(text, each) for each in held_out)}
    assert sorted(kept) == sorted(seen)


def test_choice_depends_on_the_texts_and_not_on_their_order() -> None:
    texts = [f"sentence {i}" for i in range(50)]
    chosen = split_sentences(texts, 5).held_out
    assert split_sentences(texts[::-1], 5).held_out == chosen
    assert chosen != texts[:5]


def test_a_text_with_other_blanks_is_the_same_text() -> None:
    kept, held_out = split_sentences(["a  dull\u00a0film", "a dull film", "dull  film", "b"], 2)
    assert sorted(held_out) == ["a dull film", "b"]
    assert kept == []


def test_no_text_of_a_held_out_pair_is_kept() -> None:
    pairs = [f"{a}\t{b}" for a in "abc" for b in "cde"]
    kept, held_out = split_pairs(pairs, 2)
    assert len(held_out) == 2
    unseen = set("\t".join(held_out).split("\t"))
    assert kept == [pair for pair in pairs if not unseen & set(pair.split("\t"))]


@pytest.mark.filterwarnings("ignore::models.data.notes.DataNote")
def test_rows_that_are_left_out_and_lines_of_a_text_stay_with_none_and_with_theirs(
    tmp_path: Path,
) -> None:
    data = tmp_path / "all.tsv"
    names = "qid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    data.write_text(f"{names}\n1\t2\ta b\tc d\t1\n2\t3\n\n4\t5\te f\tg h\t0\n")
    header, rows = lines_of_rows(data)
    assert (header, rows) == ([names], {2: "1\t2\ta b\tc d\t1", 5: "4\t5\te f\tg h\t0"})
    data.write_text('label\ttext\n1\t"a\nb ""c"""\n0\td\n')
    assert lines_of_rows(data)[1] == {2: '1\t"a\nb ""c"""', 4: "0\td"}


def split_file(tmp_path: Path, lines: list[str], count: int) -> tuple[list[str], list[str]]:
    """Run the command on a file of these lines; return those held out, and those to train on."""
    data, out = tmp_path / "all.tsv", tmp_path / "split"
    data.write_text("\n".join(lines) + "\n")
    words = [
        sys.executable,
        "-m",
        "models.data.hold_out",
        data,
        "--out",
        out,
        "--count",
        f"{count}",
    ]
    subprocess.run([*words, "--count", f"{count}"], check=True, capture_output=True)
    held_out, train = ((out / name).read_text() for name in ("held-out.tsv", "train.tsv"))
    return held_out.splitlines(), train.splitlines()


PAIRS = [f"{n % 2}\tthe first text {n}\tits other text {n}" for n in range(6)]
COLA = [f"src\t{n % 2}\t*\tsentence {n} is here" for n in range(6)]
SENTENCES = [f"{n % 2}\tsentence {n} is here" for n in range(6)]


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        (["label\tsentence1\tsentence2"], PAIRS),
        ([], COLA),
        (["source\tlabel\tmark\tsentence"], COLA),
        (["", "label\tsentence"], SENTENCES),
    ],
)
def test_every_row_is_in_one_of_the_files_wherever_the_header_stands(
    tmp_path: Path, header: list[str], rows: list[str]
) -> None:
    held_out, train = split_file(tmp_path, [*header, *rows], 2)
    names = header[-1:]
    assert held_out[: len(names)] == train[: len(names)] == names
    assert len(held_out) == 2 + len(names)
    assert sorted(held_out[len(names) :] + train[len(names) :]) == sorted(rows)


@pytest.mark.parametrize("columns", ["label\ttext_a", "sentence\tlabel"])
def test_command_writes_every_row_with_its_label_or_leaves_it_out(
    tmp_path: Path, columns: str
) -> None:
    rows = ["0\ta dull film", "0\tdull", "1\ta fine film", "1\tfine ", "0\ta", "1\tfine"]
    if columns.startswith("sentence"):
        rows = ["\t".join(reversed(row.split("\t"))) for row in rows]
    (header, *held_out), (header_of_train, *train) = split_file(tmp_path, [columns, *rows], 1)
    assert header == header_of_train == columns
    dull, fine = (rows[:1], rows[1:2]), (rows[2:3], [rows[3], rows[5]])
    (whole, _), (other, parts) = (dull, fine) if held_out == dull[0] else (fine, dull)
    assert held_out == whole
    assert sorted(train) == sorted([*other, *parts]), "`a` is a part of both"
