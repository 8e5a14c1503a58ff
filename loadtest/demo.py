"""`python -m loadtest.demo BUNDLE`: see texts leave a model at different layers.

Starts a server, classifies three texts under several rules, turns the policy's threshold
while the server runs, shows the exits in its metrics, and stops it.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from loadtest.http.client import ApiError, Client, Json, LivePolicy
from loadtest.http.console import complain, started
from loadtest.http.exit_counts import exits_in_metrics
from loadtest.http.interruption import interrupt_on_signals, interrupted
from loadtest.http.server_process import ServerFailed, ServerProcess, serve_bundle
from loadtest.tables import Moved, Shown, answers_table, moves_table, worded

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
    """The server runs but does not do what the demonstration says it does."""


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration; 0 only if everything it claims was seen."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.demo", description=__doc__)
    parser.add_argument("bundle", type=Path, help="bundle to serve")
    bundle = parser.parse_args(arguments).bundle
    interrupt_on_signals()
    return run(serve_bundle(bundle), Console())


def run(server: ServerProcess, console: Console) -> int:
    """Start the server, demonstrate, stop it; return the exit status."""
    try:
        with started(server, console):
            demonstrate(Client(server.url), console)
    except (ApiError, DemoFailed, ServerFailed) as error:
        if not interrupted():
            complain(console, f"the demonstration failed: {error}")
            return 1
    except KeyboardInterrupt:
        pass
    else:
        return 0
    console.print("interrupted; the server has stopped")
    return 130


def demonstrate(client: Client, console: Console) -> None:
    """Show rules, a changed policy and the metrics of a running server.

    Raises:
        DemoFailed: what was shown is not what it should be.
    """
    shown = [Shown(text, rule, client.classify(text, rule)) for text in TEXTS for rule in RULES]
    console.print(answers_table("Each request chooses its rule", shown))
    moved = _turn_threshold(client, console)
    _show_exits(client, console, num_answers=len(shown) + 2 * len(moved))


def _turn_threshold(client: Client, console: Console) -> list[Moved]:
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
    title = f"The default rule turned to {worded(default)}, without a restart"
    console.print(moves_table(title, moved))
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
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
    counted = exits_in_metrics(page).total()
    if counted != num_answers:
        raise DemoFailed(f"the metrics count {counted} exits, but there were {num_answers} answers")


if __name__ == "__main__":
    sys.exit(main())
