"""Pages of Markdown, also as one HTML file that opens anywhere: styles and pictures are inside."""

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import partial
from html import escape
from typing import Any, NamedTuple, TypeAlias

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?(e[+-]?\d+)?|inf|nan)|-")
# What pages are made of, and nothing else: names of labels and files make no links and no HTML.
_RULES = ["heading", "list", "table", "image", "emphasis", "backticks", "escape"]

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light; }}
body {{ font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 1080px; margin: 2rem auto 4rem; padding: 0 1.2rem; }}
h1 {{ font-size: 1.7rem; margin-bottom: .6rem; }}
h2 {{ font-size: 1.3rem; margin: 2.6rem 0 .6rem; padding-top: .8rem; border-top: 2px solid #ddd; }}
h3 {{ font-size: 1.05rem; margin: 1.9rem 0 .4rem; }}
p {{ max-width: 72ch; margin: .5rem 0; }}
code {{ font-size: .9em; background: #f3f3f3; padding: .1em .3em; border-radius: 3px;
  overflow-wrap: anywhere; }}
ul {{ padding-left: 1.2rem; overflow-wrap: anywhere; }}
table {{ display: block; overflow-x: auto; border-collapse: collapse; margin: .7rem 0;
  font-size: .9rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25rem .45rem; border-bottom: 1px solid #e4e4e4; text-align: left;
  vertical-align: top; }}
th {{ border-bottom: 2px solid #bbb; font-weight: 600; }}
p:has(img) {{ max-width: none; }}
img {{ max-width: 100%; height: auto; }}
em {{ color: #555; font-size: .9rem; font-style: normal; }}
</style>
</head>
<body>
"""


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

    def __str__(self) -> str:
        return f"![{self.caption}]({self.file})\n\n*{self.caption}*"


# A paragraph, a list, a table or a heading is Markdown.
Block: TypeAlias = str | Picture
Page: TypeAlias = Sequence[Block]


class Part(NamedTuple):
    """One part of a report, for one model on one data file.

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


def pictures_of(page: Page) -> list[Picture]:
    """Return a page's pictures, in order."""
    return [block for block in page if isinstance(block, Picture)]


def markdown_page(page: Page) -> str:
    """Return a page; its pictures are files beside it."""
    return "\n\n".join(map(str, page)) + "\n"


def html_page(page: Page) -> str:
    """Return a page; its first block is its heading."""
    # Cards and tables are also written where it is not installed.
    from markdown_it import MarkdownIt

    pictures = pictures_of(page)
    reader = MarkdownIt("zero").enable(_RULES)
    # Nothing else is fetched, whatever the page's words are.
    reader.validateLink = partial(_is_picture, pictures)  # type: ignore[method-assign]
    body = reader.render(markdown_page(page))
    for picture in pictures:
        inside = f"data:image/svg+xml;base64,{b64encode(picture.svg).decode()}"
        body = body.replace(f'src="{picture.file}"', f'src="{inside}"')
    title = str(page[0]).removeprefix("# ").replace("`", "")
    return _HEAD.format(title=escape(title)) + body + "</body>\n</html>\n"


def _is_picture(pictures: Sequence[Picture], url: str) -> bool:
    return any(url == picture.file for picture in pictures)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table; columns of numbers are aligned to the right."""
    body = [list(row) for row in rows]
    marks = ["---:" if numeric(body, place) else "---" for place in range(len(head))]
    lines = [head, marks, *([shown(cell) for cell in row] for row in body)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def shown(value: Any) -> str:
    """Return a number with about three digits, None as a dash, and text that fits a cell."""
    if value is None:
        return "-"
    if isinstance(value, float):
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
        return f"{value:.{digits}f}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share in percent, None as a dash."""
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def numeric(rows: Sequence[Sequence[Any]], place: int) -> bool:
    """Whether a column holds nothing but numbers, as such or written out."""
    return all(row[place] is None or _NUMBER.fullmatch(str(row[place])) for row in rows)
