"""What a part of the report gives."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from models.quality.page import Block


class Part(NamedTuple):
    """One part for one model on one data file.

    Attributes:
        title: its heading.
        blocks: what is shown.
        figures: the same for programs.
    """

    title: str
    blocks: Sequence[Block]
    figures: Any


def missing(title: str, why: str) -> Part:
    """Return a part that says why it is not there."""
    return Part(title, [f"Left out: {why}."], {"left_out": why})
