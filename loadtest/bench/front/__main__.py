"""What a request costs around the model: processor time of a server's event loop and engine.

`python -m loadtest.bench.front BUNDLE`. This server, a bare ASGI app over the same classifier (the
floor), the whole model behind FastAPI and, with --against, another checkout's server are loaded in
turns. They share one core, the load has another, and each thread's time is read from the system.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from loadtest.bench.front.rounds import Setting, measured
from loadtest.bench.front.servers import sides
from loadtest.bench.front.table import Line, cost_table, document
from loadtest.compare.contenders import ServedModel
from loadtest.compare.cores import share_cores
from loadtest.http.console import print_text, run_command
from loadtest.load.texts import NoTexts, load_texts, made_up
from serve.bundle.loader import load_bundle

# A turn has so many times fewer requests of several texts than of one.
_FEWER = 16
_THREADS = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    options, console = _options(arguments), Console()
    return run_command("benchmark", console, partial(_bench, options, console))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.front", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--precision", choices=("fp32", "int8"), default="int8")
    parser.add_argument("--against", type=Path, help="folder of another checkout")
    parser.add_argument("--data", type=Path, help="texts; made-up sentences if absent")
    parser.add_argument("--texts", default="1,32", help="texts in a request, several sizes (1,32)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--requests", type=int, default=600, help="of one text in a turn (600)")
    parser.add_argument("--clients", type=int, default=16, help="of the closed loop (16)")
    parser.add_argument("--only", default="", help="only servers whose name has this in it")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args(arguments)


def _bench(options: argparse.Namespace, console: Console) -> int:
    examples = load_texts(options.data) if options.data else made_up()
    setting = Setting(examples, share_cores(1), options.clients)
    sizes = [int(size) for size in options.texts.split(",")]
    report = partial(print_text, console)
    with tempfile.TemporaryDirectory() as folder:
        model = ServedModel(load_bundle(options.bundle), None, _THREADS, Path(folder))
        found = sides(model, options.precision, options.against)
        found = [side for side in found if options.only.lower() in side.name.lower()]
        if not found:
            raise NoTexts("no server has that in its name")
        loads = {size: _num_requests(options.requests, size) for size in sizes}
        lines = measured(found, setting, loads, options.turns, report)
    _show(lines, options, setting, report)
    return 0


def _num_requests(of_one_text: int, texts: int) -> int:
    return of_one_text if texts == 1 else max(1, of_one_text // _FEWER)


def _show(
    lines: Sequence[Line],
    options: argparse.Namespace,
    setting: Setting,
    report: Callable[[str], None],
) -> None:
    facts = {
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "model": options.bundle.name,
        "precision": options.precision,
        "texts": options.data.name if options.data else "made-up sentences",
        "clients": options.clients,
        "turns": options.turns,
        "requests": options.requests,
        "load_shares_cores": bool(setting.cores.servers & setting.cores.load),
        "machine_load": os.getloadavg()[1],
    }
    report(f"\n{cost_table(lines)}\n")
    report(", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document(lines, facts), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
