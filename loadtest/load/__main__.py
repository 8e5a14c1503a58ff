"""`python -m loadtest.load BUNDLE`: start a server, load it, report what was found, stop it.

With `--host` the load goes to a server that runs already. The report is a folder: report.md,
report.json and pictures.
"""

import argparse
import datetime
import os
import platform
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from loadtest.http.client import ApiError, Json
from loadtest.http.console import complain, started
from loadtest.http.interruption import interrupt_on_signals
from loadtest.http.server_process import ServerFailed, serve_bundle
from loadtest.load.console_report import show
from loadtest.load.figures import Figures, problems
from loadtest.load.options import (
    add_arrival_options,
    add_asking_options,
    add_shape_options,
    share_among_users,
)
from loadtest.load.report import write_report
from loadtest.load.texts import NoTexts, load_texts

_SECONDS = {"soak": 600.0, "ramp": 3600.0}  # a ramp ends by itself


class _Target(NamedTuple):
    url: str
    pid: int | None


def main(arguments: list[str] | None = None) -> int:
    """Run a load test; 0 only if every request was answered and the exits add up."""
    options = _options(arguments)
    console = Console()
    interrupt_on_signals()
    try:
        with _target(options, console) as target:
            figures = _attack_with_progress(target, options, console)
        show(figures, console)
        path = write_report(figures, _facts(options, arguments), options.out)
    except (ApiError, ServerFailed) as error:
        complain(console, f"the load test failed: {error}")
        return 1
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    console.print(f"the report is {path}", highlight=False)
    found = problems(figures, exclusive=options.host is None)
    for problem in found:
        complain(console, f"failed: {problem}")
    return 1 if found else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.load", description=__doc__)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("bundle", nargs="?", type=Path, help="bundle to serve for the test")
    target.add_argument("--host", metavar="URL", help="server that runs already")
    parser.add_argument(
        "--users", type=int, help="simulated clients (8; the first step of a ramp: 1)"
    )
    parser.add_argument("--seconds", type=float, help="length of the test (60; a soak test: 600)")
    parser.add_argument("--replicas", type=int, default=1, help="of the server started (1)")
    parser.add_argument(
        "--standalone", action="store_true", help="start the server without Ray Serve"
    )
    parser.add_argument(
        "--no-metrics", action="store_true", help="do not read /metrics before and after"
    )
    parser.add_argument("--out", type=Path, help="folder for the report (build/loadtest/<time>)")
    for add in (add_asking_options, add_arrival_options, add_shape_options):
        add(parser)
    options = parser.parse_args(arguments)
    try:
        _complete(options)
    except (NoTexts, ValueError) as error:
        parser.error(str(error))
    return options


def _complete(options: argparse.Namespace) -> None:
    """Fill in what depends on other options, and refuse what cannot work."""
    ramp = options.shape == "ramp"
    options.users = options.users or (1 if ramp else 8)
    options.num_users = options.users
    options.seconds = options.seconds or _SECONDS.get(options.shape, 60.0)
    if options.out is None:
        stamp = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
        options.out = Path("build") / "loadtest" / stamp
    if options.texts:
        load_texts(Path(options.texts), options.column)
    share_among_users(options)


@contextmanager
def _target(options: argparse.Namespace, console: Console) -> Iterator[_Target]:
    if options.host is not None:
        yield _Target(options.host, None)
        return
    how = ["--standalone"] if options.standalone else ["--replicas", str(options.replicas)]
    with started(serve_bundle(options.bundle, *how), console) as server:
        yield _Target(server.url, server.pid)


def _attack_with_progress(
    target: _Target, options: argparse.Namespace, console: Console
) -> Figures:
    from loadtest.load.locust_runner import Swarm

    ramp = options.shape == "ramp"
    length = "until it is saturated" if ramp else f"for {options.seconds:g} s"
    console.print(f"{options.users} users {length}, {_arrivals(options)}", highlight=False)
    swarm = Swarm(target.url, options, target.pid)
    columns = (BarColumn(), TextColumn("{task.completed:.0f} s, {task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None if ramp else options.seconds)
        return swarm.attack(
            lambda passed_s, per_second: progress.update(
                task, completed=passed_s, description=f"{per_second:.0f} requests/s"
            ),
        )


def _arrivals(options: argparse.Namespace) -> str:
    rate = f" at {options.rate:g} requests/s" if options.rate else ""
    return (
        f"{options.arrivals} arrivals{rate}"
        if options.arrivals != "closed"
        else (f"closed loop{rate}")
    )


def _facts(options: argparse.Namespace, arguments: list[str] | None) -> Json:
    """Return what a reader must know to repeat the run."""
    words = sys.argv[1:] if arguments is None else arguments
    return {
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "command": f"python -m loadtest.load {shlex.join(words)}",
        "load": f"{options.shape}, {options.users} users, {_arrivals(options)}",
        "texts": f"{options.texts or 'made-up sentences'}",
        "machine": f"{len(os.sched_getaffinity(0))} cores, {platform.machine()}",
        "load of the machine before": f"{os.getloadavg()[1]:.1f} (mean of five minutes)",
    }


if __name__ == "__main__":
    sys.exit(main())
