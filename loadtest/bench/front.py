"""What a request costs around the model: processor time of a server's event loop and engine.

`python -m loadtest.bench.front BUNDLE`. This server, the whole model behind FastAPI and, with
--against, another checkout's server are loaded in turns. They share one core, the load has another,
and each thread's time is read from the system.
"""

import argparse
import asyncio
import datetime
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from loadtest.benchmarks.contenders import offramp, peers
from loadtest.benchmarks.cores import on, running, share_cores
from loadtest.benchmarks.environments import write_whole_model
from loadtest.benchmarks.loads import ClosedLoop, Loaded, request_bytes, saturate
from loadtest.benchmarks.measure import WrongAnswers
from loadtest.http.client import Json
from loadtest.http.console import print_text, run_command
from loadtest.http.server_process import ServerProcess
from loadtest.load.texts import Example, load_texts, made_up
from models.quality.page import table
from serve.bundle.loader import load_bundle

THIS, OTHER = "Offramp", "Offramp, the other checkout"
_CLIENTS, _LIMIT_S = 16, 120.0
# A turn has so many times fewer requests of several texts than of one.
_FEWER = 16


class Cost(NamedTuple):
    """What a request took in one turn: milliseconds of processor time, by thread."""

    loop_ms: float  # of the main thread, which runs the event loop
    engine_ms: float  # of that other thread which took most: the one that runs the model
    other_ms: float  # of all other threads together
    per_second: float  # answered requests


class Kind(NamedTuple):
    """One server, what is asked of it in `exit`, and the texts in each request."""

    server: str
    exit: str
    texts: int


@dataclass
class Lane:
    """What one turn sends to one server, and what its requests cost in each turn."""

    kind: Kind
    process: ServerProcess
    requests: Sequence[bytes]
    costs: list[Cost] = field(default_factory=list)

    def load(self) -> Loaded:
        """Send the requests in a closed loop.

        Raises:
            WrongAnswers: the server failed to answer.
        """
        closed = ClosedLoop(_CLIENTS, 0.0, _LIMIT_S)
        loaded = asyncio.run(saturate(self.process.port, self.requests, closed))
        for answer in loaded.answers:
            if answer.status != 200:
                raise WrongAnswers(f"{self.kind.server} answered {answer.shown()}")
        return loaded

    def measure(self) -> None:
        """Send the requests and note what one took."""
        before = thread_seconds(self.process.pid)
        loaded = self.load()
        spent = split(self.process.pid, before, thread_seconds(self.process.pid))
        num = len(loaded.answers)
        loop_ms, engine_ms, other_ms = (1e3 * each / num for each in spent)
        self.costs.append(Cost(loop_ms, engine_ms, other_ms, num / loaded.seconds))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.front", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--precision", choices=("fp32", "int8"), default="int8")
    parser.add_argument("--against", type=Path, help="folder of another checkout")
    parser.add_argument("--data", type=Path, help="texts; made-up sentences if absent")
    parser.add_argument("--texts", default="1,32", help="texts in a request, several sizes (1,32)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--requests", type=int, default=600, help="of one text in a turn (600)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options, console = parser.parse_args(arguments), Console()
    return run_command("benchmark", console, partial(_bench, options, console))


def _bench(options: argparse.Namespace, console: Console) -> int:
    report = partial(print_text, console)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        lanes = list(_lanes(options, Path(folder), stack))
        draw = random.Random(0)
        with on(share_cores(1).load):
            for lane in lanes:
                lane.load()  # warms up
            for turn in range(options.turns):
                for lane in draw.sample(lanes, len(lanes)):
                    lane.measure()
                report(f"turn {turn + 1} of {options.turns}")
    lines, cores = figures({lane.kind: lane.costs for lane in lanes}), share_cores(1)
    facts = {
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "model": options.bundle.name,
        "precision": options.precision,
        "texts": options.data.name if options.data else "made-up sentences",
        "load_shares_cores": bool(cores.servers & cores.load),
        "machine_load": os.getloadavg()[1],
    }
    report(f"\n{table(list(lines[0])[:-1], [list(line.values())[:-1] for line in lines])}\n")
    report(", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()))
    if options.json:
        options.json.write_text(json.dumps({"run": facts, "lines": lines}, indent=1) + "\n")
    return 0


def _lanes(options: argparse.Namespace, folder: Path, stack: ExitStack) -> Iterator[Lane]:
    """Start all servers and yield what each is sent."""
    bundle = load_bundle(options.bundle)
    model = write_whole_model(bundle, folder, options.precision)
    whole = next(peers(folder, {"MODEL": model}))
    asked_of = list(offramp(options.bundle, bundle.manifest.policy.profiles, options.precision))[:2]
    exits: Mapping[str, Json] = {each.name.split(", ")[1]: each.extra for each in asked_of}
    own = asked_of[0].command
    commands = [(THIS, own, exits), (whole.name, whole.command, {"whole model": {}})]
    if options.against:
        code = ("env", f"PYTHONPATH={options.against.resolve()}")
        commands.insert(0, (OTHER, (*code, *own), exits))
    started = [
        (name, stack.enter_context(running(command, share_cores(1))), asked)
        for name, command, asked in commands
    ]
    examples = load_texts(options.data) if options.data else made_up()
    for texts in map(int, options.texts.split(",")):
        for name, process, asked in started:
            for exit_, extra in asked.items():
                requests = _requests(examples, options.requests, texts, extra)
                yield Lane(Kind(name, exit_, texts), process, requests)


def _requests(examples: Sequence[Example], most: int, texts: int, extra: Json) -> list[bytes]:
    """Return a turn's requests of so many texts each, with these fields."""
    inputs = cycle(example.inputs for example in examples)
    num = most if texts == 1 else max(1, most // _FEWER)
    several = (list(islice(inputs, texts)) for _ in range(num))
    return [
        request_bytes({"inputs": given[0] if texts == 1 else given} | extra) for given in several
    ]


def split(
    pid: int, before: Mapping[int, float], after: Mapping[int, float]
) -> tuple[float, float, float]:
    """Return seconds of the main thread, of the engine's thread and of all others."""
    seconds = {thread: now - before.get(thread, 0.0) for thread, now in after.items()}
    main_s = seconds.pop(pid)
    engine_s = max(seconds.values(), default=0.0)
    return main_s, engine_s, sum(seconds.values()) - engine_s


def thread_seconds(pid: int) -> dict[int, float]:
    """Return the processor time of each thread of a process so far, by thread id."""
    found = {}
    for folder in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # of a thread that has ended
            nanoseconds = (folder / "schedstat").read_text().split()[0]
            found[int(folder.name)] = int(nanoseconds) / 1e9
    return found


def figures(costs: Mapping[Kind, Sequence[Cost]]) -> list[Json]:
    """Return medians by kind, the event loop's time over the other checkout's, and the turns."""
    lines = []
    for kind, turns in costs.items():
        median = Cost(*map(statistics.median, zip(*turns, strict=True)))
        pairs = zip(turns, costs.get(kind._replace(server=OTHER), ()), strict=False)
        ratios = [own.loop_ms / other.loop_ms for own, other in pairs]
        lines.append(
            {
                **kind._asdict(),
                **median._asdict(),
                "sum_ms": sum(median[:3]),
                "event loop / other's": statistics.median(ratios) if ratios else None,
                "turns": [cost._asdict() for cost in turns],
            }
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
