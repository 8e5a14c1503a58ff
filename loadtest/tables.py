"""The demonstration's answers as tables that fit 80 columns."""

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

from loadtest.http.client import Answer, Json


class Shown(NamedTuple):
    """A text, the rule it was sent with, and its answer."""

    text: str
    rule: Json
    answer: Answer


class Moved(NamedTuple):
    """A text's answers under the policy before and after a change."""

    text: str
    before: Answer
    after: Answer


def answers_table(title: str, shown: Iterable[Shown]) -> Table:
    """Return a table with a row per text and a line per rule; a text's answers are adjacent."""
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", leading=1, pad_edge=False)
    table.add_column("text", overflow="fold")
    for heading in ("rule", "label", "score", "exit\nlayer", "reason", "ms"):
        table.add_column(heading, no_wrap=True)
    for text, rows in groupby(shown, key=lambda row: row.text):
        lines = zip(*((worded(row.rule), *_cells(row.answer)) for row in rows), strict=True)
        table.add_row(text, *("\n".join(column) for column in lines))
    return table


def moves_table(title: str, moved: Iterable[Moved]) -> Table:
    """Return a table of where texts left before and leave now."""
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", leading=1, pad_edge=False)
    table.add_column("text", overflow="fold")
    for heading in ("exit layer\nbefore", "exit layer\nnow", "policy\nversion"):
        table.add_column(heading, no_wrap=True)
    for text, before, after in moved:
        versions = f"{before.policy_version} -> {after.policy_version}"
        table.add_row(text, _layer(before), _layer(after), versions)
    return table


def worded(rule: Json) -> str:
    """Return a rule in a few words."""
    match rule:
        case {"rule": "entropy", "threshold": threshold}:
            return f"entropy < {threshold:g}"
        case {"rule": "confidence", "threshold": threshold}:
            return f"confidence >= {threshold:g}"
    return " ".join(str(value) for value in rule.values() if value is not None)


def _cells(answer: Answer) -> list[str]:
    figures = (f"{answer.score:.3f}", _layer(answer), answer.reason, f"{answer.total_ms:.1f}")
    return [answer.label, *figures]


def _layer(answer: Answer) -> str:
    return f"{answer.layer} of {answer.layers}"
