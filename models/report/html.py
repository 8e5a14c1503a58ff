"""A page as one HTML file that opens anywhere: styles and pictures are inside it."""

import re
from base64 import b64encode
from html import escape

from models.report.blocks import Block, Facts, Page, Picture, Section, Table, Text
from models.report.markdown import numeric, shown

# Characters from which a cell's text is broken into lines.
_LONG = 40

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
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: .8rem 0; }}
dt {{ color: #666; }}
dd {{ margin: 0; overflow-wrap: anywhere; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; margin: .7rem 0; font-size: .9rem;
  font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25rem .45rem; border-bottom: 1px solid #e4e4e4; text-align: left;
  vertical-align: top; white-space: nowrap; }}
th, .long {{ white-space: normal; }}
th {{ border-bottom: 2px solid #bbb; font-weight: 600; }}
.number {{ text-align: right; }}
.long {{ min-width: 16rem; }}
figure {{ margin: 1rem 0; }}
figure img {{ max-width: 100%; height: auto; }}
figcaption {{ color: #555; font-size: .9rem; max-width: 72ch; }}
</style>
</head>
<body>
"""


def html_page(page: Page) -> str:
    """Return a page."""
    title = _plain(page[0].title)
    return (
        _HEAD.format(title=escape(title)) + "\n".join(map(_section, page)) + "\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    heading = f"<h{section.level}>{_inline(section.title)}</h{section.level}>"
    return "\n".join([heading, *map(_block, section.blocks)])


def _block(block: Block) -> str:
    match block:
        case Text(text):
            return f"<p>{_inline(text)}</p>"
        case Facts(facts):
            pairs = (f"<dt>{_inline(n)}</dt><dd>{_inline(v)}</dd>" for n, v in facts.items())
            return f"<dl>{''.join(pairs)}</dl>"
        case Table():
            return _table(block)
        case Picture(_, caption, svg):
            source = f"data:image/svg+xml;base64,{b64encode(svg).decode()}"
            return (
                f'<figure><img alt="{escape(_plain(caption))}" src="{source}">'
                f"<figcaption>{_inline(caption)}</figcaption></figure>"
            )


def _table(block: Table) -> str:
    kinds = [_kind(block, place) for place in range(len(block.head))]
    head = "".join(f"<th{k}>{_inline(h)}</th>" for k, h in zip(kinds, block.head, strict=True))
    rows = "".join(
        "<tr>"
        + "".join(f"<td{k}>{_inline(shown(c))}</td>" for k, c in zip(kinds, row, strict=True))
        + "</tr>"
        for row in block.rows
    )
    content = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="wide"><table>{content}</table></div>'


def _kind(block: Table, place: int) -> str:
    """Return the class of a column's cells."""
    if numeric(block.rows, place):
        return ' class="number"'
    longest = max((len(shown(row[place])) for row in block.rows), default=0)
    return ' class="long"' if longest > _LONG else ""


def _inline(text: str) -> str:
    """Return Markdown's code and bold as HTML."""
    safe = escape(text.replace("\\|", "|"), quote=False)
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", safe)


def _plain(text: str) -> str:
    return text.replace("`", "").replace("**", "")
