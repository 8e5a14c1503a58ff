"""`python -m loadtest.load BUNDLE`: start a server, load it, report, stop it.

With `--host` the load goes to a server that already runs. The report is a folder: report.md,
report.json and Locust's charts.
"""

import argparse
import datetime
import os
import platform
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from loadtest.http.client import Json
from loadtest.http.console import print_error, print_text, run_command, started
from loadtest.http.processes import Family
from loadtest.http.server_process import serve_bundle
from loadtest.load.figures import Run, problems
from loadtest.load.options import add_options, positive, set_rate_per_user, whole_number
from loadtest.load.report import write_report
from loadtest.load.texts import NoTexts, load_texts

_SECONDS = {"soak": 600.0, "ramp": 3600.0}  # a ramp ends by itself


def main(arguments: list[str] | None = None) -> int:
    """Run a load test; 0 only if every request was answered and the exits add up."""
    words = sys.argv[1:] if arguments is None else arguments
    options, console = _options(words), Console()
    return run_command("load test", console, partial(_run, options, words, console))


def _run(options: argparse.Namespace, words: list[str], console: Console) -> int:
    with _target(options, console) as (url, family):
        run = _load(url, family, options, console)
    path, summary = write_report(run, _facts(options, words), options.out)
    print_text(console, f"\n{summary}\n\nthe report is {path}")
    found = problems(run, exclusive=options.host is None)
    for problem in found:
        print_error(console, f"failed: {problem}")
    return 1 if found else 0


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.load", description=__doc__)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("bundle", nargs="?", type=Path, help="bundle to serve for the test")
    target.add_argument("--host", metavar="URL", help="a server that already runs")
    parser.add_argument(
        "--users", type=whole_number, help="simulated clients (8; the first step of a ramp: 1)"
    )
    parser.add_argument(
        "--seconds", type=positive, help="length of the test (60; a soak test: 600)"
    )
    parser.add_argument(
        "--replicas", type=whole_number, default=1, help="of the server started (1)"
    )
    parser.add_argument(
        "--standalone", action="store_true", help="start the server without Ray Serve"
    )
    parser.add_argument(
        "--no-metrics", action="store_true", help="do not read /metrics before and after"
    )
    parser.add_argument("--out", type=Path, help="folder for the report (build/loadtest/<time>)")
    add_options(parser)
    options = parser.parse_args(words)
    try:
        _complete(options)
    except (NoTexts, ValueError) as error:
        parser.error(str(error))
    return options


def _complete(options: argparse.Namespace) -> None:
    """Set the defaults that depend on other options, and check the options together."""
    options.users = options.users or (1 if options.shape == "ramp" else 8)
    options.num_users = options.users
    options.seconds = options.seconds or _SECONDS.get(options.shape, 60.0)
    if options.out is None:
        stamp = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
        options.out = Path("build") / "loadtest" / stamp
    if options.texts:
        load_texts(Path(options.texts), options.column)
    set_rate_per_user(options)


@contextmanager
def _target(options: argparse.Namespace, console: Console) -> Iterator[tuple[str, Family | None]]:
    if options.host is not None:
        yield options.host, None
        return
    how = ["--standalone"] if options.standalone else ["--replicas", str(options.replicas)]
    with started(serve_bundle(options.bundle, *how), console) as server:
        yield server.url, server.family


def _load(url: str, family: Family | None, options: argparse.Namespace, console: Console) -> Run:
    # Importing Locust patches the standard library for gevent.
    from loadtest.load.locust_runner import LocustRunner

    ramp = options.shape == "ramp"
    length = "until the server is saturated" if ramp else f"for {options.seconds:g} s"
    console.print(f"{options.users} users {length}, {_arrivals(options)}", highlight=False)
    runner = LocustRunner(url, options, family)
    columns = (BarColumn(), TextColumn("{task.completed:.0f} s, {task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None if ramp else options.seconds)
        return runner.run(
            lambda passed_s, per_second: progress.update(
                task, completed=passed_s, description=f"{per_second:.0f} requests/s"
            ),
        )


def _arrivals(options: argparse.Namespace) -> str:
    kind = "closed loop" if options.arrivals == "closed" else f"{options.arrivals} arrivals"
    return f"{kind} at {options.rate:g} requests/s" if options.rate else kind


def _facts(options: argparse.Namespace, words: list[str]) -> Json:
    """Return what a reader must know to repeat the run."""
    return {
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "command": f"python -m loadtest.load {shlex.join(words)}",
        "load": f"{options.shape}, {options.users} users, {_arrivals(options)}",
        "texts": options.texts or "made-up sentences",
        "machine": f"{len(os.sched_getaffinity(0))} cores, {platform.machine()}",
        "load of the machine before": f"{os.getloadavg()[1]:.1f} (mean of five minutes)",
    }


if __name__ == "__main__":
    sys.exit(main())
