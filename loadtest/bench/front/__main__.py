"""What a request costs around the model: processor time of a server's event loop and engine.

`python -m loadtest.bench.front BUNDLE`. This server, the whole model behind FastAPI and, with
--against, another checkout's server are loaded in turns. They share one core, the load has another,
and each thread's time is read from the system.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from loadtest.bench.front.costs import figures
from loadtest.bench.front.servers import Setting, measured, sides
from loadtest.compare.contenders import ServedModel
from loadtest.compare.cores import share_cores
from loadtest.http.console import print_text, run_command
from loadtest.load.texts import load_texts, made_up
from models.report.markdown import table
from serve.bundle.loader import load_bundle

_CLIENTS, _THREADS = 16, 1


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
    examples = load_texts(options.data) if options.data else made_up()
    sizes = [int(size) for size in options.texts.split(",")]
    setting = Setting(examples, share_cores(1), _CLIENTS, options.requests, options.turns)
    report = partial(print_text, console)
    with tempfile.TemporaryDirectory() as folder:
        model = ServedModel(load_bundle(options.bundle), None, _THREADS, Path(folder))
        found = sides(model, options.precision, options.against)
        lines = figures(measured(found, setting, sizes, report))
    facts = {
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "model": options.bundle.name,
        "precision": options.precision,
        "texts": options.data.name if options.data else "made-up sentences",
        "load_shares_cores": bool(setting.cores.servers & setting.cores.load),
        "machine_load": os.getloadavg()[1],
    }
    report(f"\n{table(list(lines[0])[:-1], [list(line.values())[:-1] for line in lines])}\n")
    report(", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()))
    if options.json:
        options.json.write_text(json.dumps({"run": facts, "lines": lines}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
