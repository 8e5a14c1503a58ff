"""`python -m loadtest.run BUNDLE`: start a server, load it, say what was found, stop it.

With `--host` the load goes to a server that runs already.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from loadtest.client import ApiError
from loadtest.figures import Figures, problems
from loadtest.interruption import interrupt_on_signals
from loadtest.report import show
from loadtest.server import ServerFailed, serve_bundle
from loadtest.swarm import Load, attack
from loadtest.telling import complain, started


def main(arguments: list[str] | None = None) -> int:
    """Run a load test; 0 only if every request was answered and the exits add up."""
    options = _options(arguments)
    console = Console()
    interrupt_on_signals()
    try:
        with _target(options, console) as url:
            figures = _attack_with_progress(url, options, console)
        show(figures, console)
    except (ApiError, ServerFailed) as error:
        complain(console, f"the load test failed: {error}")
        return 1
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    found = problems(figures, exclusive=options.host is None)
    for problem in found:
        complain(console, f"failed: {problem}")
    return 1 if found else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.run", description=__doc__)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("bundle", nargs="?", type=Path, help="bundle to serve for the test")
    target.add_argument("--host", metavar="URL", help="server that runs already")
    parser.add_argument("--users", type=int, default=8, help="simulated clients (8)")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the test (60)")
    parser.add_argument(
        "--exit", type=json.loads, metavar="JSON", help="exit rule that all requests ask for"
    )
    return parser.parse_args(arguments)


@contextmanager
def _target(options: argparse.Namespace, console: Console) -> Iterator[str]:
    if options.host is not None:
        yield options.host
        return
    with started(serve_bundle(options.bundle), console) as server:
        yield server.url


def _attack_with_progress(url: str, options: argparse.Namespace, console: Console) -> Figures:
    load = Load(options.users, options.seconds, options.exit)
    console.print(f"{load.users} users for {load.seconds:g} s", highlight=False)
    columns = (BarColumn(), TextColumn("{task.completed:.0f} s, {task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=load.seconds)
        return attack(
            url,
            load,
            lambda passed_s, per_second: progress.update(
                task, completed=passed_s, description=f"{per_second:.0f} requests/s"
            ),
        )


if __name__ == "__main__":
    sys.exit(main())
