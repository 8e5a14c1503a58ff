"""Records of a data file with their line numbers, in any of the supported formats."""

import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice, tee
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from models.data.columns import BROKEN_ROWS, TEXT_NAMES, fold, names_without_header
from models.data.lines import read_lines
from models.data.notes import note
from models.data.other_formats import other_format
from models.errors import UnusableData

# Between the fields of tables, of those too that are not read.
_SEPARATORS = ",;\t|"
# Fields with such characters are put in quotes: by csv writers, and by Excel.
_QUOTED_FOR = [frozenset('\t\r\n"'), frozenset('\t\r\n",')]

# An empty field in quotes, as the csv module writes one alone in its line.
_EMPTY = re.compile('(?<![^\t\n])""(?![^\t\n])')
# The module's default refuses texts of 131,073 characters.
csv.field_size_limit(sys.maxsize)

_Cells: TypeAlias = tuple[int, list[str]]  # line number, fields


class Record(NamedTuple):
    """One record.

    Attributes:
        path: the file.
        line: where the record begins, counted from 1.
        header: the line that names the columns.
        values: by column, in the order of the file; texts, except in JSON.
    """

    path: Path
    line: int
    header: int
    values: Mapping[str, object]

    def unusable(self, reason: str) -> UnusableData:
        """Return the error that names file and line."""
        return UnusableData(f"{self.path} line {self.line}: {reason}")

    def unusable_header(self, reason: str) -> UnusableData:
        """Return the error that names the line with the names of the columns."""
        return UnusableData(f"{self.path} line {self.header}: {reason}")


def read_records(path: Path) -> Iterator[Record]:
    """Yield a file's records; the suffix decides the format.

    `.tsv`, and `.txt` with such a header, are split on tabs, and quotes are text, unless all quotes
    are a csv writer's; `.csv` follows the csv module's rules; `.jsonl` and `.json` hold one object
    per line, and so may `.txt`. All are UTF-8.

    Raises:
        UnusableData: a missing file, an unknown suffix, not UTF-8, a header with a name twice, or a
            line that does not fit the header or is no JSON object.
    """
    suffix = path.suffix.lower()
    if suffix in _READERS:
        return _READERS[suffix](path)
    raise other_format(path, _READERS)


def is_plain(path: Path) -> bool:
    """Return whether a `.txt` is no table: its first line names no column of a text.

    A name alone in the line is one as programs write it; `Question` may be a heading.
    """
    if path.suffix.lower() != ".txt":
        return False
    _, first = next(read_lines(path), (1, ""))
    names = first.strip().split("\t")
    if holds_json(path):
        return False
    return TEXT_NAMES.isdisjoint(map(fold, names) if len(names) > 1 else names)


def holds_json(path: Path) -> bool:
    """Return whether a file's first line is a JSON object with a text, as SciTail's `.txt`."""
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    try:
        values = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(values, dict) and not TEXT_NAMES.isdisjoint(map(fold, values))


def _text(path: Path) -> Iterator[Record]:
    return _json_lines(path) if holds_json(path) else _tab_separated(path)


def _tab_separated(path: Path) -> Iterator[Record]:
    if _is_quoted(path):
        return _table(path, _fields(path, "\t"))
    lines = (
        (number, line.rstrip("\r\n").split("\t"))
        for number, line in read_lines(path)
        if _is_row(line, "\t")
    )
    return _table(path, lines)


def _comma_separated(path: Path) -> Iterator[Record]:
    _, first = next(read_lines(path), (1, ""))
    names = names_without_header(first.rstrip("\r\n").split("\t"))
    if names:  # STS-B: tabs in a .csv, and in some rows further columns with the texts' sources
        rows = ((n, line.rstrip("\r\n").split("\t")) for n, line in read_lines(path))
        return _table(path, ((n, cells[: len(names)]) for n, cells in rows if any(cells)))
    return _table(path, _fields(path, ","))


def _is_quoted(path: Path) -> bool:
    """Return whether a program has put fields of a tab-separated file into quotes.

    Its quotes show in the names of the columns, or are exactly where csv writers or Excel put them.
    """
    if not any('"' in line for _, line in read_lines(path)):
        return False
    first = next(read_lines(path))[1].rstrip("\r\n")
    if '"' in first and not names_without_header(first.split("\t")):
        return True
    read, again = tee(line for _, line in read_lines(path))
    reader, num_lines, rules = csv.reader(read, delimiter="\t", strict=True), 0, _QUOTED_FOR
    with suppress(csv.Error):
        for fields in reader:
            lines = "".join(islice(again, reader.line_num - num_lines)).rstrip("\r\n")
            num_lines = reader.line_num
            lines = _EMPTY.sub("", lines)
            rules = [rule for rule in rules if _EMPTY.sub("", _written(fields, rule)) == lines]
            if not rules:
                return False
        return True
    return False


def _written(fields: Sequence[str], rule: frozenset[str]) -> str:
    doubled = ((field, field.replace('"', '""')) for field in fields)
    return "\t".join(f if rule.isdisjoint(f) else f'"{twice}"' for f, twice in doubled)


def _fields(path: Path, separator: str) -> Iterator[_Cells]:
    read: list[str] = []

    def lines() -> Iterator[str]:
        for _, line in read_lines(path):
            read.append(line)
            yield line

    reader = csv.reader(lines(), delimiter=separator, strict=True, skipinitialspace=True)
    start = 1
    try:
        for fields in reader:
            if _is_row("".join(read), separator):
                yield start, fields
            read.clear()
            start = reader.line_num + 1
    except csv.Error as error:
        if start == 1 and re.search(f'"[{_SEPARATORS.replace(separator, "")}]', read[0]):
            raise _single_column(path, start, read[0].strip()) from None
        if "new-line" in str(error):
            raise UnusableData(
                f"{path} line {start}: a CR alone ends no line; save it with LF or CRLF"
            ) from None
        raise UnusableData(
            f"{path} line {start}: {error}: a text with a quote, a line end or the separator "
            'is put in quotes, and each quote in it is doubled: "say ""hello"" twice"'
        ) from None


def _is_row(line: str, separator: str) -> bool:
    return separator in line or bool(line.strip())


def _without_margin(rows: Iterable[_Cells]) -> Iterator[_Cells]:
    """Yield rows without those of empty fields before and after them, as spreadsheets write."""
    is_first, empty = True, list[_Cells]()
    for row in rows:
        if len(row[1]) > 1 and not any(map(str.strip, row[1])):
            empty.append(row)
        else:
            yield from () if is_first else empty
            is_first = False
            empty.clear()
            yield row


def _table(path: Path, rows: Iterator[_Cells]) -> Iterator[Record]:
    filled = _without_margin(rows)
    first = next(filled, None)
    if first is None:
        return
    header, names = first[0], names_without_header(first[1])
    if names:
        filled = chain([first], filled)
    names = names or _names(path, *first)
    may_be_short = {fold(name) for name in names} >= BROKEN_ROWS
    num_short = 0
    for line, cells in filled:
        _check_surplus(path, line, cells[len(names) :])
        if len(cells) > 1 and [cell.strip(" \ufeff") for cell in cells] == names:
            raise UnusableData(
                f"{path} line {line}: the header is there again, as in files that were joined; "
                "take the line out"
            )
        if len(cells) >= len(names):
            yield Record(path, line, header, dict(zip(names, cells, strict=False)))
        elif may_be_short:
            num_short += 1
        else:
            raise UnusableData(
                f"{path} line {line}: {_counted(cells)}, but the header in line {header} names "
                f"{len(names)}: {', '.join(names)}; no text may hold a line end unless it is "
                "quoted in a .csv, or in a .jsonl"
            )
    if num_short:
        note(f"{path}: rows left out because they lack columns: {num_short}")


def _names(path: Path, line: int, cells: Sequence[str]) -> list[str]:
    if len(cells) == 1 and not set(_SEPARATORS).isdisjoint(cells[0]):
        raise _single_column(path, line, cells[0])
    names = [cell.strip() or f"(column {place})" for place, cell in enumerate(cells, start=1)]
    folded = [fold(name) for name in names]
    twice = [name for name in names if folded.count(fold(name)) > 1]
    if twice:
        raise UnusableData(
            f"{path} line {line}: the header names {' and '.join(twice)}; a name may be there once"
        )
    return names


def _single_column(path: Path, line: int, found: str) -> UnusableData:
    return UnusableData(
        f"{path} line {line}: a single column, {found:.80}; fields are separated by commas in "
        ".csv, by tabs in .tsv"
    )


def _check_surplus(path: Path, line: int, fields: Sequence[str]) -> None:
    # Such fields are usually the rest of a text that contains the separator.
    if any(field.strip() for field in fields):
        raise UnusableData(
            f"{path} line {line}: {fields[0][:40]!r} is beyond the header's last column; no text "
            "may hold the separator unless it is quoted in a .csv, or in a .jsonl"
        )


def _counted(cells: Sequence[str]) -> str:
    return "there is 1 column" if len(cells) == 1 else f"there are {len(cells)} columns"


def _json_lines(path: Path) -> Iterator[Record]:
    for line, text in read_lines(path):
        if text.strip():
            yield Record(path, line, line, _json_object(path, line, text))


def _json_object(path: Path, line: int, text: str) -> Mapping[str, object]:
    try:
        values = json.loads(text, object_pairs_hook=without_repeats)
    except (ValueError, RecursionError) as error:
        raise UnusableData(
            f"{path} line {line}: not JSON: {error}; each line holds one object; of an array, "
            "jq -c '.[]' makes a line for each object, of objects in several lines, jq -c ."
        ) from None
    if not isinstance(values, dict):
        raise UnusableData(
            f"{path} line {line}: expected a JSON object; of an array, jq -c '.[]' makes a line "
            "for each object"
        )
    if "\\ud" in text.lower() and re.search(
        "[\ud800-\udfff]", json.dumps(values, ensure_ascii=False)
    ):
        raise UnusableData(f"{path} line {line}: half of a surrogate pair, which is no character")
    return values


def without_repeats(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object's fields, for `json.loads`; a name that is there twice is refused."""
    listed = list(pairs)
    values = dict(listed)
    if len(values) < len(listed):
        names = [name for name, _ in listed]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} is there twice")
    return values


_READERS = {
    ".tsv": _tab_separated,
    ".txt": _text,
    ".csv": _comma_separated,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
}
