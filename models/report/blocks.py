"""What a page is made of, before it is HTML or Markdown."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias


class Text(NamedTuple):
    """A paragraph."""

    text: str


class Facts(NamedTuple):
    """A list of names with their values."""

    facts: dict[str, str]


class Table(NamedTuple):
    """Rows under a head; numbers are aligned to the right."""

    head: Sequence[str]
    rows: Sequence[Sequence[Any]]


class Picture(NamedTuple):
    """A picture.

    Attributes:
        file: name beside the page.
        caption: what it shows.
        svg: the picture itself.
    """

    file: str
    caption: str
    svg: bytes


Block: TypeAlias = Text | Facts | Table | Picture


class Section(NamedTuple):
    """A heading with what follows it.

    Attributes:
        level: 1 for the page's title, 2 for a section, 3 for a part of one.
    """

    title: str
    level: int
    blocks: Sequence[Block] = ()


Page: TypeAlias = list[Section]


def pictures_of(page: Page) -> list[Picture]:
    """Return a page's pictures, in order."""
    return [b for section in page for b in section.blocks if isinstance(b, Picture)]
