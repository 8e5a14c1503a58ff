"""Fonts that have the letters of labels, in any script."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib as mpl
from matplotlib.font_manager import (
    FontProperties,
    findfont,
    findSystemFonts,
    fontManager,
    get_font,
)

from models.data.notes import note


@contextmanager
def fonts_for(words: str) -> Iterator[None]:
    """Draw with the usual font, and behind it with fonts of this machine that have what it lacks.

    A note names what no font has.
    """
    families = [str(family) for family in mpl.rcParams["font.family"]]
    usual = findfont(FontProperties(family=families))
    lacking = {letter for letter in words if not letter.isspace()} - _letters(usual)
    for path in sorted(findSystemFonts()) if lacking else ():
        found = lacking & _letters(path)
        if found:
            fontManager.addfont(path)
            families.append(get_font(path).family_name)
            lacking -= found
    if lacking:
        shown = "".join(sorted(lacking)[:20])
        note(
            f"no font of this machine has {shown}, and pictures show boxes in their place: install "
            "one, such as Debian's fonts-noto-cjk (Chinese, Japanese, Korean) or fonts-noto-core "
            "(most other scripts), and evaluate again"
        )
    with warnings.catch_warnings(), mpl.rc_context({"font.family": families}):
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def _letters(path: str) -> set[str]:
    """Return what a font can show; nothing if it cannot be read, as fonts of bitmaps."""
    try:
        return set(map(chr, get_font(path).get_charmap()))
    except (OSError, RuntimeError):
        return set()
