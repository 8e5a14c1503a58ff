"""Answers in time under more load than a server can take, with and without `overload`.

`python -m loadtest.overload BUNDLE`. The capacity is what a closed loop gets under the policy
without `overload`. Then requests arrive at multiples of it, whatever becomes of them, in turns with
and without; every request has the deadline as its `timeout_ms`. Server and load have a core each.
"""

import argparse
import datetime
import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from loadtest.compare.connection import request_bytes
from loadtest.compare.cores import on, running, share_cores
from loadtest.http.client import Client, Json
from loadtest.http.console import print_text, run_command
from loadtest.http.server_process import OFFRAMP
from loadtest.load.texts import load_texts, made_up
from loadtest.overload.goodput import capacity, goodput
from models.report.markdown import table

_SETTLE_S = 3.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.overload", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--precision", choices=("fp32", "int8"), default="int8")
    parser.add_argument("--data", type=Path, help="texts; made-up sentences if absent")
    parser.add_argument("--deadline-ms", type=float, default=250.0, help="timeout_ms (250)")
    parser.add_argument("--usual", type=float, default=0.005, help="max_disagreement (0.005)")
    parser.add_argument("--most", type=float, default=0.05, help="the same under overload (0.05)")
    parser.add_argument("--queue-ms", type=float, default=50.0, help="of overload (50)")
    parser.add_argument("--loads", default="0.5,1,1.5,2", help="times the capacity (0.5,1,1.5,2)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load (10)")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options, console = parser.parse_args(arguments), Console()
    return run_command("benchmark", console, partial(_bench, options, console))


def _bench(options: argparse.Namespace, console: Console) -> int:
    examples = load_texts(options.data) if options.data else made_up()
    bundle, cores = options.bundle, share_cores(1)
    asked = {"timeout_ms": options.deadline_ms}
    requests = [request_bytes({"inputs": each.inputs, **asked}) for each in examples]
    command = (OFFRAMP, "serve", str(bundle), "--standalone", "--precision", options.precision)
    lines: list[dict[str, Any]] = []
    with running((*command, "--port"), cores) as server, on(cores.load):
        client = Client(server.url)
        _put(client, bundle.name, _policy(options, False))
        most = capacity(server.port, requests, options.seconds)
        print_text(console, f"capacity without overload: {most:.0f} requests/s")
        times = [float(each) for each in options.loads.split(",")]
        for _, load, overload in product(range(options.turns), times, (False, True)):
            _put(client, bundle.name, _policy(options, overload))
            time.sleep(_SETTLE_S)
            rate = load * most
            found = goodput(
                server.port, requests, rate, options.seconds, options.deadline_ms / 1000
            )
            lines.append({"load": load, "overload": overload, **found._asdict()})
            print_text(console, str(lines[-1]))
    facts = {
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "model": bundle.name,
        "precision": options.precision,
        "texts": options.data.name if options.data else "made-up sentences",
        "capacity": most,
        "machine_load": os.getloadavg()[1],
    }
    rows = [list(line.values()) for line in lines]
    print_text(console, f"\n{table(list(lines[0]), rows)}\n\n{facts}")
    if options.json:
        options.json.write_text(json.dumps({"run": facts, "lines": lines}, indent=1) + "\n")
    return 0


def _policy(options: argparse.Namespace, overload: bool) -> Json:
    usual = {"default": {"target": {"max_disagreement": options.usual}}, "audit": {"share": 0.0}}
    target = {"max_disagreement": options.most}
    return (
        {**usual, "overload": {"queue_ms": options.queue_ms, "target": target}}
        if overload
        else usual
    )


def _put(client: Client, model: str, document: Json) -> None:
    client.replace_policy(model, client.policy(model)._replace(document=document))


if __name__ == "__main__":
    sys.exit(main())
