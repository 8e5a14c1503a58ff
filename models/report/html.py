"""A page as one HTML file that opens anywhere: styles and pictures are inside it."""

from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from html import escape

from markdown_it import MarkdownIt

from models.report.markdown import Page, Picture, markdown_page, pictures_of

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


def html_page(page: Page) -> str:
    """Return a page; its first block is its heading."""
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
