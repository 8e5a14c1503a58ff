"""Tables of the pages have headers and all cells; links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "helm", "models")
PAGES = sorted([*ROOT.glob("*.md"), *(p for name in FOLDERS for p in (ROOT / name).rglob("*.md"))])
FENCE = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return FENCE.sub("", page.read_text("utf-8"))


def cells(row: str) -> int:
    """Return the number of cells in a row of a table; an escaped bar is text."""
    return len(re.findall(r"(?<!\\)\|", row)) - 1


def anchors(page: Path) -> set[str]:
    """Return the anchors of the page's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


@every_page
def test_tables_have_a_header_and_all_their_cells(page: Path) -> None:
    for table in re.findall(r"(?:^ *\|.*\n)+", prose(page), re.M):
        head, *rows = table.splitlines()
        assert rows, f"one row alone is no table: {head}"
        assert re.fullmatch(r" *\|( *:?-+:? *\|)+", rows[0]), f"no header: {head}"
        assert {cells(row) for row in rows} == {cells(head)}, f"cells are missing below: {head}"


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


@every_page
def test_files_that_are_named_exist(page: Path) -> None:
    if page.name == "CHANGELOG.md":  # names what there was
        return
    folders = "serve|export|models|loadtest|tests|docs|helm"
    for path in re.findall(rf"`((?:{folders})/[\w/.-]+\.[a-z]+)`", page.read_text("utf-8")):
        assert (ROOT / path).exists(), f"{path}: no such file"
