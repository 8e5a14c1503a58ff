"""`python -m loadtest.load.coordinated_omission BUNDLE`: what a closed loop does not see.

The same server gets the same rate of requests, once in a closed loop and once in an open loop. In
the middle of each run the server stands still for a moment. The users of the closed loop stand
still too, so most of the waiting is never measured.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
from rich.console import Console

from loadtest.http.console import print_text, run_command, started
from loadtest.http.server_process import ServerProcess, serve_bundle
from loadtest.load.load_process import LoadProcess
from models.report.markdown import table

_USERS = 4
_BEFORE_S = 5.0


def main(arguments: list[str] | None = None) -> int:
    """Run both and print the table."""
    options, console = _options(arguments), Console()
    return run_command("demonstration", console, partial(_compare, options, console))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.load.coordinated_omission", description=__doc__
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rate", type=float, default=25.0, help="requests per second (25)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run (30)")
    parser.add_argument("--still", type=float, default=2.0, help="seconds of standing still (2)")
    parser.add_argument("--out", type=Path, default=Path("build/omission"))
    return parser.parse_args(arguments)


def _compare(options: argparse.Namespace, console: Console) -> int:
    with started(serve_bundle(options.bundle, "--standalone"), console) as server:
        rows = [_row(server, options, arrivals) for arrivals in ("closed", "poisson")]
    head = ("requests from", "requests", "p50 ms", "p95 ms", "p99 ms", "longest ms")
    print_text(console, table(head, rows))
    return 0


def _row(server: ServerProcess, options: argparse.Namespace, arrivals: str) -> list[object]:
    words = ["--arrivals", arrivals, "--rate", f"{options.rate:g}", "--users", str(_USERS)]
    words += ["--weights", "default=1"]
    with LoadProcess(server.url, options.seconds, words, options.out / arrivals) as load:
        while not load.sending:
            time.sleep(0.1)
        time.sleep(_BEFORE_S)
        with standing_still(server):
            time.sleep(options.still)
        found = load.report()
    name = f"{_USERS} users in a closed loop" if arrivals == "closed" else "an open loop (Poisson)"
    times = found["client"]["due_to_answer"]
    return [name, found["total"]["requests"], *(times[n] for n in ("p50", "p95", "p99", "max"))]


@contextmanager
def standing_still(server: ServerProcess) -> Iterator[None]:
    """Suspend a server's processes for a block."""
    processes = server.family.running()
    try:
        for process in processes:
            process.suspend()
        yield
    finally:
        for process in processes:
            with suppress(psutil.Error):
                process.resume()


if __name__ == "__main__":
    sys.exit(main())
