"""What a dialect adds to the processor time of a lone request.

`python -m loadtest.bench.dialects BUNDLE`. One server answers the same text in every dialect, in
turns; its processor time is read from the system, so that the client does not count.
"""

import argparse
import http.client
import json
import random
import statistics
import struct
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from loadtest.http.client import Json
from loadtest.http.console import run_command
from loadtest.http.server_process import ServerFailed, serve_bundle

BAR = 1.10
TEXT = "The movie was awesome."
_WARM_UP = 100


class Lone(NamedTuple):
    """A request with one text, as one dialect's client sends it."""

    dialect: str
    path: str
    body: bytes
    headers: dict[str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table; 1 if the server failed."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.dialects", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--requests", type=int, default=200, help="per dialect and turn")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    return run_command("benchmark", console, partial(_bench, options, console))


def _bench(options: argparse.Namespace, console: Console) -> int:
    with serve_bundle(options.bundle, "--standalone") as server:
        server.wait_until_ready()
        process = psutil.Process(server.pid)
        spent = measure(process, server.port, lone_requests(options.bundle.name), options)
    console.print(_table(spent))
    if options.json:
        options.json.write_text(json.dumps(spent, indent=2) + "\n")
    return 0


def lone_requests(model: str) -> list[Lone]:
    """Return a request for each dialect; the first is our own route."""
    text = TEXT.encode()
    tensor = struct.pack("<I", len(text)) + text
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "TEXT",
                    "datatype": "BYTES",
                    "shape": [1, 1],
                    "parameters": {"binary_data_size": len(tensor)},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    binary = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(head)),
    }
    detected = {"contents": [TEXT], "detector_params": {"flag": {"negative": 0.5}}}
    return [
        _json("v1", "/v1/classify", {"inputs": TEXT}),
        _json("hf", "/", {"inputs": TEXT}),
        _json("tei", "/predict", {"inputs": TEXT}),
        _json("vllm", "/classify", {"input": TEXT}),
        _json("kserve", f"/v1/models/{model}:predict", {"instances": [TEXT]}),
        _json("guardrails", "/api/v1/text/contents", detected),
        Lone("oip, binary", f"/v2/models/{model}/infer", head + tensor, binary),
    ]


def _json(dialect: str, path: str, body: Json) -> Lone:
    return Lone(dialect, path, json.dumps(body).encode(), {"Content-Type": "application/json"})


def measure(
    process: psutil.Process, port: int, asked: Sequence[Lone], options: argparse.Namespace
) -> dict[str, list[float]]:
    """Return the server's processor time per request, in microseconds, by dialect and turn.

    Raises:
        ServerFailed: a request was refused.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for lone in asked:
        _send(connection, lone, _WARM_UP)
    spent: dict[str, list[float]] = {lone.dialect: [] for lone in asked}
    draw = random.Random(0)
    for _ in range(options.turns):
        for lone in draw.sample(asked, len(asked)):
            before_s = _processor_s(process)
            _send(connection, lone, options.requests)
            spent_s = _processor_s(process) - before_s
            spent[lone.dialect].append(1e6 * spent_s / options.requests)
    connection.close()
    return spent


def _send(connection: http.client.HTTPConnection, lone: Lone, times: int) -> None:
    for _ in range(times):
        connection.request("POST", lone.path, lone.body, lone.headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status != http.client.OK:
            raise ServerFailed(f"{lone.dialect}: status {response.status}: {answer[:300]!r}")


def _processor_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _table(spent: dict[str, list[float]]) -> Table:
    own = next(iter(spent.values()))
    table = Table(title="processor time of a lone request", box=SIMPLE_HEAD, title_justify="left")
    for heading in ("dialect", "microseconds", "against v1"):
        table.add_column(heading, justify="left" if heading == "dialect" else "right")
    worst = 0.0
    for dialect, turns in spent.items():
        ratio = statistics.median(a / b for a, b in zip(turns, own, strict=True))
        worst = max(worst, ratio)
        table.add_row(dialect, f"{statistics.median(turns):.0f}", f"{ratio:.2f}")
    table.caption = f"worst {worst:.2f}; at most {BAR:.2f}: {'met' if worst <= BAR else 'missed'}"
    return table


if __name__ == "__main__":
    sys.exit(main())
