"""Records of a data file with their line numbers, in any of the supported formats."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from models.errors import UnusableData

# The csv module stores fields beyond the header's last column under this key.
_SURPLUS = "\t"

Record: TypeAlias = tuple[int, Mapping[str, object]]  # line number, values by column


def read_records(path: Path) -> Iterator[Record]:
    """Yield a file's records; the suffix decides the format.

    `.tsv` is split on tabs only, so quotes are text; `.csv` follows the csv module's rules;
    `.jsonl` and `.json` hold one object per line. All are UTF-8.

    Raises:
        UnusableData: a missing file, an unknown suffix, not UTF-8, or a line that is no JSON
            object.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UnusableData(f"{path}: the name must end in {', '.join(_READERS)}")
    if not path.is_file():
        raise UnusableData(f"{path}: no such file")
    try:
        yield from reader(path)
    except UnicodeDecodeError as error:
        raise UnusableData(f"{path}: not UTF-8 text: {error}") from None


def _tab_separated(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        header = file.readline().rstrip("\r\n").split("\t")
        for line, text in enumerate(file, start=2):
            if text.strip():
                fields = text.rstrip("\r\n").split("\t")
                _check_surplus(path, line, fields[len(header) :])
                yield line, dict(zip(header, fields, strict=False))


def _comma_separated(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, restkey=_SURPLUS)
        for values in reader:
            _check_surplus(path, reader.line_num, values.pop(_SURPLUS, []))
            yield reader.line_num, values


def _check_surplus(path: Path, line: int, fields: Sequence[str]) -> None:
    # Such fields are usually the rest of a text that contains the separator.
    if any(field.strip() for field in fields):
        raise UnusableData(
            f"{path} line {line}: {fields[0][:40]!r} is beyond the header's last column; no text "
            "may hold the separator unless it is quoted in a .csv, or in a .jsonl"
        )


def _json_lines(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8-sig") as file:
        for line, text in enumerate(file, start=1):
            if text.strip():
                yield line, _json_object(path, line, text)


def _json_object(path: Path, line: int, text: str) -> Mapping[str, object]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise UnusableData(f"{path} line {line}: not JSON: {error}") from None
    if not isinstance(values, dict):
        raise UnusableData(f"{path} line {line}: expected a JSON object")
    return values


_READERS = {
    ".tsv": _tab_separated,
    ".csv": _comma_separated,
    ".jsonl": _json_lines,
    ".json": _json_lines,
}
