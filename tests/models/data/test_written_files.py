"""What the csv and json modules write is read back equal, or refused."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from models.data.datasets import read_dataset
from models.data.examples import Example
from models.errors import UnusableData

_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
_TEXTS = st.text(_CHARACTERS | st.sampled_from('"",;\t\r\n|\\'), min_size=1, max_size=12)
_ROWS = st.lists(st.tuples(_TEXTS, st.sampled_from(["no", "yes"])), min_size=1, max_size=5)


def _by_csv(dialect: str, **options: object) -> Callable[[Sequence[tuple[str, str]]], str]:
    def write(rows: Sequence[tuple[str, str]]) -> str:
        file = io.StringIO()
        csv.writer(file, dialect, **options).writerows([("text", "label"), *rows])
        return file.getvalue()

    return write


def _by_json(rows: Sequence[tuple[str, str]]) -> str:
    return "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("d.csv", _by_csv("excel")),
        ("d.csv", _by_csv("unix")),
        ("d.tsv", _by_csv("excel-tab")),
        ("d.tsv", _by_csv("excel-tab", quoting=csv.QUOTE_ALL)),
        ("d.jsonl", _by_json),
    ],
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=_ROWS)
@example(rows=[("a\r", "no"), ("b\rc", "yes")])
@example(rows=[('"so, good"', "no"), ("a\tb\nc", "yes")])
@example(rows=[("a,no\nb,yes\nc", "no"), ("d", "yes")])
def test_what_writers_write_is_read_back_or_refused(
    tmp_path: Path,
    name: str,
    write: Callable[[Sequence[tuple[str, str]]], str],
    rows: list[tuple[str, str]],
) -> None:
    path = tmp_path / name
    path.write_bytes(write(rows).encode())
    expected = [(text.strip(), None, int(label == "yes")) for text, label in rows]
    assert _read(path) in (expected, f"{path} line")


def _read(path: Path) -> list[Example] | str:
    """Return a file's examples, or the beginning of its refusal."""
    try:
        return read_dataset(path, "single_label", ["no", "yes"]).examples
    except UnusableData as error:
        return str(error)[: len(f"{path} line")]
