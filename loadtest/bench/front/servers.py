"""The servers that are measured beside each other."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.compare.contenders import ServedModel, one_graph, policies
from loadtest.http.client import Json
from loadtest.http.server_process import OFFRAMP
from serve.bundle.manifest import Precision

THIS = "Offramp"
AGAINST = "Offramp in {}"
FLOOR = "bare ASGI app over the same classifier"


@dataclass(frozen=True)
class Side:
    """One server of the benchmark.

    Attributes:
        name: in the tables.
        command: starts it; a port is appended.
        exits: what is asked of it, and the fields of such requests beside `inputs`.
    """

    name: str
    command: Sequence[str]
    exits: Mapping[str, Json]


def sides(model: ServedModel, precision: Precision, against: Path | None) -> list[Side]:
    """Return all servers: this one, the other checkout's, the floor and the contender."""
    exits = dict(policies(model.bundle)[:2])
    folder = str(model.bundle.folder)
    options = ("--precision", precision, "--port")

    def offramp(name: str, *environment: str) -> Side:
        command = (*environment, OFFRAMP, "serve", folder, "--standalone", *options)
        return Side(name, command, exits)

    others = []
    if against:
        code = ("env", f"PYTHONPATH={against.resolve()}")
        others.append(offramp(AGAINST.format(against), *code))
    floor = (sys.executable, "-m", "loadtest.bench.front.floor", folder, *options)
    contender = one_graph(model, precision)
    return [
        offramp(THIS),
        *others,
        Side(FLOOR, floor, exits),
        Side("ONNX Runtime + FastAPI", contender.command, {"whole model": {}}),
    ]
