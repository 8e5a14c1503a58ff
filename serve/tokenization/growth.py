"""Refuses normalizers of tokenizers that may make a text much longer."""

import math
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

# Normalizers of models have up to ten parts and make a letter up to 18 letters; some dozens of
# parts that double it would make a text of one letter fill the memory.
MOST_PARTS: Final = 256
MOST_GROWTH: Final = 64

_Part = Mapping[str, Any]


def growth_problem(normalizer: _Part | None) -> str | None:
    """Return why a normalizer is refused, as the end of a sentence; None if it is not.

    Args:
        normalizer: the normalizer in a `tokenizer.json`.
    """
    parts = list(_parts(normalizer))
    if len(parts) > MOST_PARTS:
        return f"its normalizer has {len(parts)} parts, more than {MOST_PARTS}"
    growth = math.prod(_GROWTH[part["type"]](part) for part in parts if part["type"] in _GROWTH)
    if growth > MOST_GROWTH:
        return f"its normalizer may make a text more than {MOST_GROWTH} times as long"
    return None


def _parts(normalizer: _Part | None) -> Iterator[_Part]:
    if normalizer and normalizer["type"] == "Sequence":
        for part in normalizer["normalizers"]:
            yield from _parts(part)
    elif normalizer:
        yield normalizer


def _replace(part: _Part) -> float:
    # A regular expression may match a single letter.
    replaced = part["pattern"].get("String") or " "
    return max(1.0, len(part["content"]) / len(replaced))


def _prepend(part: _Part) -> float:
    return 1.0 + len(part["prepend"])


def _precompiled(part: _Part) -> float:
    """Return the length of the longest text that the map of SentencePiece has for a letter."""
    content = b64decode(part["precompiled_charsmap"] or "")
    texts = content[4 + int.from_bytes(content[:4], "little") :]
    return max(1.0, *(len(text.decode(errors="replace")) for text in texts.split(b"\0")), 1.0)


_GROWTH: Final[Mapping[str, Callable[[_Part], float]]] = {
    "ByteLevel": lambda _: 4.0,  # a letter for each byte
    "Precompiled": _precompiled,
    "Prepend": _prepend,
    "Replace": _replace,
}
