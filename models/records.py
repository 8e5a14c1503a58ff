"""Records of a data file with their line numbers, whatever the format."""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from models.errors import UnusableData

Record: TypeAlias = tuple[int, Mapping[str, object]]  # line number, values by column


def read_records(path: Path) -> Iterator[Record]:
    """Yield a file's records; the suffix decides the format.

    `.tsv` is split on tabs only, so quotes are text; `.csv` follows the csv module's rules;
    `.jsonl` and `.json` hold one object per line. All are UTF-8.

    Raises:
        UnusableData: no such file or format, not UTF-8, or a line that is no JSON object.
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
                yield line, dict(zip(header, text.rstrip("\r\n").split("\t"), strict=False))


def _comma_separated(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        for values in reader:
            yield reader.line_num, values


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
