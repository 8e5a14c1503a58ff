"""The lines of a text file, decoded; every reader of data files begins here."""

import codecs
from collections.abc import Iterator
from pathlib import Path

from models.errors import UnusableData

# Of a longer line no more is read: a file without line feeds may be larger than the memory.
_MOST_BYTES = 64 << 20


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers, counted from 1, and lines with their ends.

    Only a line feed ends a line: other line separators may be part of a text.

    Raises:
        UnusableData: a missing file, or a line that is not UTF-8 text or has more than 64 MiB.
    """
    if not path.is_file():
        what = "no file of lines" if path.exists() else "no such file"
        raise UnusableData(f"{path}: {what}")
    with path.open("rb") as file:
        lines = iter(lambda: file.readline(_MOST_BYTES + 1), b"")
        for number, raw in enumerate(lines, start=1):
            if len(raw) > _MOST_BYTES:
                raise UnusableData(
                    f"{path} line {number}: more than {_MOST_BYTES >> 20} MiB; of a JSON array, "
                    "jq -c '.[]' makes a line for each object"
                )
            yield number, _decoded(path, number, raw)


def _decoded(path: Path, number: int, raw: bytes) -> str:
    if number == 1:
        raw = raw.removeprefix(codecs.BOM_UTF8)
    is_utf16 = number == 1 and raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if is_utf16 or b"\0" in raw:
        raise UnusableData(
            f"{path} line {number}: not UTF-8 text: it has NUL bytes, as UTF-16 and files that "
            "are no text have; save it as UTF-8"
        )
    # Of a file without LF, all is one line.
    if number == 1 and b"\r" in raw.rstrip(b"\r\n"):
        raise UnusableData(f"{path} line 1: a CR alone ends no line; save it with LF or CRLF")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UnusableData(
            f"{path} line {number}: not UTF-8 text: {error}; save it as UTF-8, of Western texts "
            "mostly by iconv -f windows-1252 -t utf-8"
        ) from None
