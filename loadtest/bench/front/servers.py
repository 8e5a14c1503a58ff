"""The servers that are measured beside each other, and their loads in turns."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from loadtest.bench.front.costs import OTHER, THIS, Lane, Line, measure
from loadtest.compare.connection import request_bytes
from loadtest.compare.contenders import ServedModel, one_graph, policies
from loadtest.compare.cores import Cores, on, running
from loadtest.http.client import Json
from loadtest.http.server_process import OFFRAMP
from loadtest.load.texts import Example
from serve.bundle.manifest import Precision

# A turn has so many times fewer requests of several texts than of one.
_FEWER = 16


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


@dataclass(frozen=True)
class Setting:
    """The texts, cores and clients of every load, and how much is sent in how many turns."""

    examples: Sequence[Example]
    cores: Cores
    clients: int
    num_requests: int  # of one text, in a turn
    turns: int

    def requests(self, texts: int, extra: Json) -> list[bytes]:
        """Return a turn's requests of so many texts each, with these fields."""
        inputs = cycle(example.inputs for example in self.examples)
        num = self.num_requests if texts == 1 else max(1, self.num_requests // _FEWER)
        several = (list(islice(inputs, texts)) for _ in range(num))
        return [
            request_bytes({"inputs": given[0] if texts == 1 else given} | extra)
            for given in several
        ]


def sides(model: ServedModel, precision: Precision, against: Path | None) -> list[Side]:
    """Return all servers: the other checkout's, this one and the contender."""
    exits = dict(policies(model.bundle)[:2])
    folder = str(model.bundle.folder)
    options = ("--precision", precision, "--port")
    offramp = (OFFRAMP, "serve", folder, "--standalone", *options)
    whole = one_graph(model, precision).command
    found = [
        Side(THIS, offramp, exits),
        Side("ONNX Runtime + FastAPI", whole, {"whole model": {}}),
    ]
    if against:
        code = ("env", f"PYTHONPATH={against.resolve()}")
        found.insert(0, Side(OTHER, (*code, *offramp), exits))
    return found


def measured(
    sides: Sequence[Side], setting: Setting, sizes: Sequence[int], report: Callable[[str], None]
) -> list[Line]:
    """Return what requests cost: of every server, exit and number of texts.

    Raises:
        ServerFailed: a server did not start, or did not stop.
        WrongAnswers: a server failed to answer.
    """
    lanes, kinds = [], []
    with ExitStack() as stack:
        servers = [stack.enter_context(running(side.command, setting.cores)) for side in sides]
        for texts in sizes:
            for side, server in zip(sides, servers, strict=True):
                for name, extra in side.exits.items():
                    requests = setting.requests(texts, extra)
                    lanes.append(Lane(side.name, server, requests, setting.clients))
                    kinds.append((side.name, name, texts))
        with on(setting.cores.load):
            costs = measure(lanes, setting.turns, report)
    return [Line(*kind, of_lane) for kind, of_lane in zip(kinds, costs, strict=True)]
