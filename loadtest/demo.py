"""`python -m loadtest.demo BUNDLE`: see texts leave a model at different layers.

Starts a server, classifies three texts under several rules, changes the policy's threshold while
the server runs, shows the exits in its metrics, and stops it.
"""

import argparse
import sys
from collections.abc import Iterable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from loadtest.http.client import Answer, ApiError, Client, Json, LivePolicy
from loadtest.http.console import print_text, run_command, started
from loadtest.http.metrics_page import MetricsPage
from loadtest.http.server_process import ServerFailed, ServerProcess, serve_bundle

TEXTS = (
    "The movie was awesome.",
    "You are good at messing up.",
    "I wonder whether the plot was written by a 12-year-old or by an award-winning writer.",
)
RULES: tuple[Json, ...] = (
    {"rule": "entropy", "threshold": 0.05},
    {"rule": "entropy", "threshold": 0.2},
    {"rule": "entropy", "threshold": 0.5},
    {"rule": "patience", "patience": 2},
)
CAREFUL: Json = {"rule": "entropy", "threshold": 0.01}
BOLD: Json = {"rule": "entropy", "threshold": 0.6}


class DemoFailed(Exception):
    """The server does not do what the demonstration says it does."""


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


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration; 0 only if everything it claims was seen."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.demo", description=__doc__)
    parser.add_argument("bundle", type=Path, help="bundle to serve")
    bundle = parser.parse_args(arguments).bundle
    return run(serve_bundle(bundle), Console())


def run(server: ServerProcess, console: Console) -> int:
    """Start the server, demonstrate, stop it; return the exit status."""
    failures = (ApiError, DemoFailed, ServerFailed)
    return run_command("demonstration", console, partial(_demonstrate, server, console), failures)


def _demonstrate(server: ServerProcess, console: Console) -> int:
    with started(server, console):
        demonstrate(Client(server.url), console)
    return 0


def demonstrate(client: Client, console: Console) -> None:
    """Show rules, a changed policy and the metrics of a running server.

    Raises:
        DemoFailed: what was shown is not what it should be.
    """
    shown = [Shown(text, rule, client.classify(text, rule)) for text in TEXTS for rule in RULES]
    console.print(_answers_table("Each request chooses its rule", shown))
    moved = _change_threshold(client, console)
    _show_exits(client, console, num_answers=len(shown) + 2 * len(moved))


def _change_threshold(client: Client, console: Console) -> list[Moved]:
    """Change the default rule and show that texts sent without a rule leave elsewhere."""
    before = [client.classify(text) for text in TEXTS]
    model = before[0].model
    live = client.policy(model)
    leaves_early = any(answer.layer < answer.layers for answer in before)
    default = CAREFUL if leaves_early else BOLD
    document = live.document | {"default": default}
    new = client.replace_policy(model, LivePolicy(live.version, document))
    after = [client.classify(text) for text in TEXTS]
    moved = [Moved(*row) for row in zip(TEXTS, before, after, strict=True)]
    title = f"The default rule changed to {rule_text(default)}, without a restart"
    console.print(_moves_table(title, moved))
    _check_moved(moved, new.version)
    return moved


def _check_moved(moved: list[Moved], version: int) -> None:
    stale = {row.after.policy_version for row in moved} - {version}
    if stale:
        raise DemoFailed(f"answers name policy version {stale} after {version} was accepted")
    if all(row.before.layer == row.after.layer for row in moved):
        raise DemoFailed("no text leaves elsewhere since the default rule was changed")


def _show_exits(client: Client, console: Console, num_answers: int) -> None:
    page = client.metrics()
    lines = [line for line in page.splitlines() if line.startswith("offramp_exit_layer_")]
    console.print("From /metrics, answers by exit layer (cumulative) and reason:")
    print_text(console, "\n".join(lines))
    counted = MetricsPage.of(page).exits().total()
    if counted != num_answers:
        raise DemoFailed(f"the metrics count {counted} exits, but there were {num_answers} answers")


def _answers_table(title: str, shown: Iterable[Shown]) -> Table:
    """Return a table with a row per text and a line per rule; a text's answers are adjacent."""
    table = _table(title, "rule", "label", "score", "exit\nlayer", "reason", "ms")
    for text, rows in groupby(shown, key=lambda row: row.text):
        lines = zip(*((rule_text(row.rule), *_cells(row.answer)) for row in rows), strict=True)
        table.add_row(text, *("\n".join(column) for column in lines))
    return table


def _moves_table(title: str, moved: Iterable[Moved]) -> Table:
    table = _table(title, "exit layer\nbefore", "exit layer\nnow", "policy\nversion")
    for text, before, after in moved:
        versions = f"{before.policy_version} -> {after.policy_version}"
        table.add_row(text, _layer(before), _layer(after), versions)
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", leading=1, pad_edge=False)
    table.add_column("text", overflow="fold")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def rule_text(rule: Json) -> str:
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


if __name__ == "__main__":
    sys.exit(main())
