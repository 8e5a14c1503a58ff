"""Answers in time under more load than a server can take, with and without `overload`.

`python -m loadtest.overload BUNDLE`. The capacity is what a closed loop gets under the policy
without `overload`. Then requests arrive at multiples of it, whatever becomes of them, in turns with
and without; each has the deadline as its `timeout_ms`. Server and load have a core each.
"""

import argparse
import datetime
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from loadtest.compare.connection import request_bytes
from loadtest.compare.cores import on, running, share_cores
from loadtest.http.client import Client, Json
from loadtest.http.console import print_text, run_command
from loadtest.http.server_process import OFFRAMP
from loadtest.load.texts import load_texts, made_up
from loadtest.overload.goodput import Compared, capacity, compared, goodput
from loadtest.overload.picture import picture
from models.report.markdown import table

_NUM_REQUESTS = 800
_SETTLE_S = 3.0  # the queue is empty then


class _Server(NamedTuple):
    port: int
    model: str

    def follow(self, policy: Json) -> None:
        """Put a policy, and wait until what the one before it has left is over."""
        client = Client(f"http://127.0.0.1:{self.port}")
        live = client.policy(self.model)
        client.replace_policy(self.model, live._replace(document=policy))
        time.sleep(_SETTLE_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.overload", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--precision", choices=("fp32", "int8"), default="int8")
    parser.add_argument("--data", type=Path, help="texts; made-up sentences if absent")
    parser.add_argument("--texts", default="1,8", help="texts in a request, several sizes (1,8)")
    parser.add_argument("--deadline-ms", type=float, default=250.0, help="timeout_ms (250)")
    parser.add_argument("--usual", type=float, default=0.005, help="max_disagreement (0.005)")
    parser.add_argument("--most", type=float, default=0.05, help="the same under overload (0.05)")
    parser.add_argument("--queue-ms", type=float, default=50.0, help="of overload (50)")
    parser.add_argument("--loads", default="0.5,1,1.5,2", help="times the capacity (0.5,1,1.5,2)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each load (6)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--picture", type=Path, help="draw the figures into this SVG file")
    options, console = parser.parse_args(arguments), Console()
    return run_command("benchmark", console, partial(_bench, options, console))


def _bench(options: argparse.Namespace, console: Console) -> int:
    report, found = partial(print_text, console), []
    with _running(options) as server:
        for texts in map(int, options.texts.split(",")):
            found += _measured(server, options, texts)
            report(str(found[-1]))
    facts = {
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "model": options.bundle.name,
        "precision": options.precision,
        "texts": options.data.name if options.data else "made-up sentences",
        "deadline_ms": options.deadline_ms,
        "machine_load": os.getloadavg()[1],
    }
    report(f"\n{table(list(found[0].row), [list(each.row.values()) for each in found])}\n")
    report(", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()))
    if options.json:
        lines = [{"texts": each.texts, "load": each.load, **each.row} for each in found]
        options.json.write_text(json.dumps({"run": facts, "lines": lines}, indent=1) + "\n")
    if options.picture:
        options.picture.write_bytes(picture(found))
    return 0


@contextmanager
def _running(options: argparse.Namespace) -> Iterator[_Server]:
    cores, folder = share_cores(1), str(options.bundle)
    how = ("--standalone", "--precision", options.precision, "--port")
    with running((OFFRAMP, "serve", folder, *how), cores) as server, on(cores.load):
        yield _Server(server.port, options.bundle.name)


def _measured(server: _Server, options: argparse.Namespace, texts: int) -> list[Compared]:
    """Return what becomes of requests of so many texts at each load."""
    usual, overloaded = _policies(options)
    requests = _requests(options, texts)
    server.follow(usual)
    most = capacity(server.port, requests, options.seconds, options.turns)
    found = []
    for load in map(float, options.loads.split(",")):
        turns = []
        for _ in range(options.turns):
            sides = []
            for policy in (usual, overloaded):
                server.follow(policy)
                timing = options.seconds, options.deadline_ms / 1000
                sides.append(goodput(server.port, requests, load * most, *timing))
            turns.append((sides[0], sides[1]))
        found.append(compared(texts, load, turns))
    return found


def _requests(options: argparse.Namespace, texts: int) -> list[bytes]:
    examples = load_texts(options.data) if options.data else made_up()
    inputs = cycle(example.inputs for example in examples)
    several = (list(islice(inputs, texts)) for _ in range(_NUM_REQUESTS))
    asked = {"timeout_ms": options.deadline_ms}
    return [request_bytes({"inputs": given, **asked}) for given in several]


def _policies(options: argparse.Namespace) -> tuple[Json, Json]:
    """Return the policy without `overload` and with it."""
    usual: Json = {
        "default": {"target": {"max_disagreement": options.usual}},
        "audit": {"share": 0.0},
    }
    own = {"queue_ms": options.queue_ms, "target": {"max_disagreement": options.most}}
    return usual, {**usual, "overload": own}


if __name__ == "__main__":
    sys.exit(main())
