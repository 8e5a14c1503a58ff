"""The benchmark's loads: every server in turns."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, islice

from loadtest.bench.front.costs import Lane, measure
from loadtest.bench.front.servers import Side
from loadtest.bench.front.table import Line
from loadtest.compare.connection import request_bytes
from loadtest.compare.cores import Cores, on, running
from loadtest.http.client import Json
from loadtest.load.texts import Example

# How many requests are sent, by the number of texts in each.
Loads = Mapping[int, int]


@dataclass(frozen=True)
class Setting:
    """The texts, cores and clients of every load."""

    examples: Sequence[Example]
    cores: Cores
    clients: int

    def requests(self, texts: int, num_requests: int, extra: Json) -> list[bytes]:
        """Return requests of so many texts each, and with these fields."""
        inputs = cycle(example.inputs for example in self.examples)
        several = (list(islice(inputs, texts)) for _ in range(num_requests))
        return [
            request_bytes({"inputs": given[0] if texts == 1 else given} | extra)
            for given in several
        ]


def measured(
    sides: Sequence[Side],
    setting: Setting,
    loads: Loads,
    turns: int,
    report: Callable[[str], None],
) -> list[Line]:
    """Return what requests cost: of every server, exit and number of texts.

    Raises:
        ServerFailed: a server did not start, or did not stop.
        WrongAnswers: a server failed to answer.
    """
    lanes, kinds = [], []
    with ExitStack() as stack:
        servers = [stack.enter_context(running(side.command, setting.cores)) for side in sides]
        for texts, num_requests in loads.items():
            for side, server in zip(sides, servers, strict=True):
                for name, extra in side.exits.items():
                    requests = setting.requests(texts, num_requests, extra)
                    lanes.append(Lane(side.name, server, requests, setting.clients))
                    kinds.append((side.name, name, texts))
        with on(setting.cores.load):
            costs = measure(lanes, turns, report)
    return [Line(*kind, of_lane) for kind, of_lane in zip(kinds, costs, strict=True)]
