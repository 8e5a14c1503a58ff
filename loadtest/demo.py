"""`python -m loadtest.demo BUNDLE`: see texts leave a model at different layers.

Compares the bundle at full depth with transformers, if --model names what it was made from. Starts
a server, classifies three texts under targets and rules, shows what the targets became, changes the
policy's threshold while the server runs, and shows what early exits gain over the whole model.
"""

import argparse
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from loadtest.http.client import Answer, Client, Json, LivePolicy, Resolved
from loadtest.http.console import print_text, run_command, started
from loadtest.http.metrics_page import MetricsPage
from loadtest.http.server_process import ServerProcess, serve_bundle
from loadtest.load.texts import make_sentences
from serve.errors import OfframpError
from serve.rules import EXIT_RULE

TEXTS = (
    "The movie was awesome.",
    "You are good at messing up.",
    "I wonder whether the plot was written by a 12-year-old or by an award-winning writer.",
)
TARGETS: tuple[Json, ...] = ({"target": {"max_disagreement": 0.01}}, {"target": {"speedup": 2}})
WISHES: tuple[Json, ...] = (
    *TARGETS,
    {"rule": "entropy", "threshold": 0.2},
    {"rule": "patience", "patience": 2},
)
CAREFUL: Json = {"rule": "entropy", "threshold": 0.01}
WHOLE: Json = {"rule": "never"}
# As many texts a request, and requests a round.
GAIN_TEXTS, GAIN_REQUESTS, GAIN_ROUNDS = 32, 8, 3
BOLD: Json = {"rule": "entropy", "threshold": 0.6}


class DemoFailed(OfframpError):
    """The server does not do what the demonstration says it does."""


class Shown(NamedTuple):
    """A text, the target or rule it was sent with, and its answer."""

    text: str
    wish: Json
    answer: Answer


class Gain(NamedTuple):
    """What a target or rule makes of many texts: mean layers, and answers per second."""

    wish: Json
    layers: float
    per_s: float


class Moved(NamedTuple):
    """A text's answers under the policy before and after a change."""

    text: str
    before: Answer
    after: Answer


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration; 0 only if everything it claims was seen."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.demo", description=__doc__)
    parser.add_argument("bundle", type=Path, help="bundle to serve")
    parser.add_argument("--model", type=Path, help="what the bundle was exported from")
    given, console = parser.parse_args(arguments), Console()
    if given.model is not None:
        failed = run_command("comparison", console, partial(_compare, given, console))
        if failed:
            return failed
    return run(serve_bundle(given.bundle), console)


def _compare(given: argparse.Namespace, console: Console) -> int:
    """Compare the bundle with transformers, whose import takes longer than the comparison."""
    began = time.monotonic()
    with console.status("comparing the bundle with transformers"):
        from loadtest.against_transformers import compare

        imported = time.monotonic()
        said = compare(given.bundle, given.model)
    took = f"{time.monotonic() - imported:.1f} s, after {imported - began:.1f} s of imports"
    print_text(console, f"the bundle was {said} ({took})")
    return 0


def run(server: ServerProcess, console: Console) -> int:
    """Start the server, demonstrate, stop it; return the exit status."""
    return run_command("demonstration", console, partial(_demonstrate, server, console))


def _demonstrate(server: ServerProcess, console: Console) -> int:
    with started(server, console):
        demonstrate(Client(server.url), console)
    return 0


def demonstrate(client: Client, console: Console) -> None:
    """Show targets, rules, a changed policy and the metrics of a running server.

    Raises:
        DemoFailed: what was shown is not what it should be.
    """
    shown = [Shown(text, wish, client.classify(text, wish)) for text in TEXTS for wish in WISHES]
    console.print(_answers_table("Each request says what it wants, or chooses its rule", shown))
    console.print(_targets_table(shown[: len(WISHES)]))
    moved = _change_threshold(client, console)
    _check_counts(client, num_answers=len(shown) + 2 * len(moved))
    console.print(_gain_table(measure(client, (WHOLE, *TARGETS))))


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


def _check_counts(client: Client, num_answers: int) -> None:
    counted = MetricsPage.of(client.metrics()).exits().total()
    if counted != num_answers:
        raise DemoFailed(f"the metrics count {counted} exits, but there were {num_answers} answers")


def measure(client: Client, wishes: Sequence[Json]) -> list[Gain]:
    """Have the same made-up sentences classified by each target or rule, in turns."""
    texts = make_sentences(GAIN_TEXTS * GAIN_REQUESTS, seed=0)
    requests = [texts[i : i + GAIN_TEXTS] for i in range(0, len(texts), GAIN_TEXTS)]
    layers, took_s = [0] * len(wishes), [0.0] * len(wishes)
    for _ in range(GAIN_ROUNDS):
        for place, wish in enumerate(wishes):
            began_s = time.monotonic()
            for request in requests:
                results = client.classify_all(request, wish)
                layers[place] += sum(result["exit"]["layer"] for result in results)
            took_s[place] += time.monotonic() - began_s
    num = len(texts) * GAIN_ROUNDS
    return [
        Gain(wish, total / num, num / seconds)
        for wish, total, seconds in zip(wishes, layers, took_s, strict=True)
    ]


def _gain_table(gains: Sequence[Gain]) -> Table:
    num, whole = GAIN_TEXTS * GAIN_REQUESTS, gains[0]
    title = f"What early exits gain here: {num} sentences, {GAIN_TEXTS} a request, one at a time"
    table = _table(title, "mean\nlayers", "answers/s", "times\nas many", first="target or rule")
    for gain in gains:
        faster = f"{gain.per_s / whole.per_s:.2f}"
        table.add_row(wish_text(gain.wish), f"{gain.layers:.2f}", f"{gain.per_s:.0f}", faster)
    return table


def _answers_table(title: str, shown: Iterable[Shown]) -> Table:
    """Return a table with a row per text and a line per wish; a text's answers are adjacent."""
    table = _table(title, "target or rule", "label", "score", "exit\nlayer", "reason")
    for text, rows in groupby(shown, key=lambda row: row.text):
        lines = zip(*((wish_text(row.wish), *_cells(row.answer)) for row in rows), strict=True)
        # As many lines as wishes; the texts are written out in the last table.
        short = textwrap.shorten(text, 32, placeholder=" ...")
        table.add_row(short, *("\n".join(column) for column in lines))
    return table


def _targets_table(shown: Iterable[Shown]) -> Table:
    """Return what each target has become; the first column holds targets, not texts."""
    table = _table("What the targets became", "rule", "mean\nlayers", "certified", first="target")
    for row in shown:
        if "target" in row.wish:
            found = row.answer.resolved
            if found is None:
                raise DemoFailed("an answer does not say what its target became")
            cells = rule_text(found.rule), f"{found.expected_layers:.2f}", _promise(found)
            table.add_row(wish_text(row.wish), *cells)
    return table


def _promise(found: Resolved) -> str:
    match found:
        case Resolved(certificate={"epsilon": epsilon, "delta": delta, "n": n}):
            return f"at most {100 * epsilon:g} % (delta {delta:g}, n {n})"
        case Resolved(rule={"rule": "never"}):
            return "runs all layers"
    return "no"


def _moves_table(title: str, moved: Iterable[Moved]) -> Table:
    table = _table(title, "exit layer\nbefore", "exit layer\nnow", "policy\nversion")
    for text, before, after in moved:
        versions = f"{before.policy_version} -> {after.policy_version}"
        table.add_row(text, _layer(before), _layer(after), versions)
    return table


def _table(title: str, *headings: str, first: str = "text") -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", leading=1, pad_edge=False)
    table.add_column(first, overflow="fold")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def wish_text(wish: Json) -> str:
    """Return a target or a rule in a few words."""
    match wish:
        case {"target": {"max_disagreement": share}}:
            return f"at most {100 * share:g} % differ"
        case {"rule": "never"}:
            return "the whole model"
        case {"target": {"speedup": factor}}:
            return f"{factor:g} times as fast"
    return rule_text(wish)


def rule_text(rule: Json) -> str:
    """Return a rule in a few words."""
    return EXIT_RULE.validate_python(rule).text()


def _cells(answer: Answer) -> list[str]:
    return [answer.label, f"{answer.score:.3f}", _layer(answer), answer.reason]


def _layer(answer: Answer) -> str:
    return f"{answer.layer} of {answer.layers}"


if __name__ == "__main__":
    sys.exit(main())
