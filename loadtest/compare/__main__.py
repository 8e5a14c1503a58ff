"""Offramp beside other servers, on one machine, with the same requests.

Each contender gets a server process of its own on the same cores with the same number of threads;
the load comes from another core. First each is saturated (closed loop), then each gets one fixed
rate that all can serve (open loop, the same arrivals).
"""

import argparse
import datetime
import json
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console

from loadtest.compare.contenders import Contender, ServedModel, contenders
from loadtest.compare.cores import share_cores
from loadtest.compare.loads import ClosedLoop
from loadtest.compare.measure import (
    FixedRate,
    Saturated,
    Setting,
    measure_fixed,
    measure_saturated,
)
from loadtest.compare.table import Line, table_text
from loadtest.http.client import Json
from loadtest.http.console import print_text, run_command
from loadtest.load.texts import Example, NoTexts, load_texts, made_up
from serve.bundle.loader import Bundle, load_bundle

# Of the slowest contender's throughput: a load at which no queue grows.
_SHARE_OF_SLOWEST = 0.6
_CLIENTS = 16  # of the closed loop
_LIMIT_S = 120.0  # of a closed loop at most


def main(arguments: list[str] | None = None) -> int:
    """Compare and print the table."""
    options, console = _options(arguments), Console()
    return run_command("comparison", console, partial(_compare, options, console))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.compare", description=__doc__)
    parser.add_argument("bundle", type=Path, help="bundle with fp32, and int8 if that is compared")
    parser.add_argument("--model", type=Path, help="its checkpoint, for the transformers pipeline")
    parser.add_argument("--data", type=Path, help="TSV with labels; else agreement is measured")
    parser.add_argument("--texts", type=int, default=872, help="how many texts at most (872)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each load at least (8)")
    parser.add_argument("--rate", type=float, help="of the open loop (0.6 of the slowest's best)")
    parser.add_argument("--no-ray", action="store_true", help="leave out Ray Serve")
    parser.add_argument("--only", default="", help="only contenders whose name has this in it")
    parser.add_argument("--out", type=Path, default=Path("build/compare"), help="(build/compare)")
    return parser.parse_args(arguments)


def _compare(options: argparse.Namespace, console: Console) -> int:
    examples = load_texts(options.data) if options.data else made_up()
    cores, report = share_cores(), partial(print_text, console)
    load = ClosedLoop(_CLIENTS, options.seconds, _LIMIT_S)
    chosen = random.Random(0).sample(examples, min(options.texts, len(examples)))
    setting = Setting(chosen, cores, load)
    with tempfile.TemporaryDirectory() as folder:
        bundle = load_bundle(options.bundle)
        model = ServedModel(bundle, options.model, len(cores.servers), Path(folder))
        found = [c for c in contenders(model, not options.no_ray) if options.only in c.name]
        _check(examples, bundle, found)
        saturated: list[Saturated] = []
        fixed: list[FixedRate] = []
        for contender in found:
            saturated.append(heavy := measure_saturated(contender, setting))
            report(f"{heavy.name}: {heavy.per_second:.0f} requests/s")
        rate = options.rate or _SHARE_OF_SLOWEST * min(s.per_second for s in saturated)
        for contender in found:
            fixed.append(light := measure_fixed(contender, setting, rate))
            report(f"{contender.name}: p99 {light.p99_ms:.0f} ms at {rate:.0f} requests/s")
    lines = _lines(saturated, fixed, chosen, bundle.manifest.labels)
    facts = _facts(options, setting, rate)
    _write(lines, facts, options.out)
    report(table_text(lines, facts))
    return 0


def _check(examples: Sequence[Example], bundle: Bundle, found: list[Contender]) -> None:
    task = bundle.manifest.task
    if any(not isinstance(example.inputs, str) for example in examples):
        raise NoTexts("the servers that are compared take single texts, and these are pairs")
    if task != "single_label":
        raise NoTexts(f"only single-label models are compared, not {task}")
    if not found:
        raise NoTexts("no contender has that in its name")


def _lines(
    saturated: list[Saturated],
    fixed: list[FixedRate],
    examples: list[Example],
    labels: tuple[str, ...],
) -> list[Line]:
    """Put speed and quality side by side: accuracy, and agreement with full depth in fp32."""
    full = next((s.labels for s in saturated if "fp32" in s.name), saturated[0].labels)
    lines = []
    for heavy, light in zip(saturated, fixed, strict=True):
        pairs = list(zip(examples, heavy.labels, strict=True))
        found = [example.right(label, labels) for example, label in pairs]
        known = [right for right in found if right is not None]
        right = sum(known) / len(known) if known else None
        agreed = sum(a == b for a, b in zip(full, heavy.labels, strict=True)) / len(full)
        lines.append(Line(heavy, light, right, agreed))
    return lines


def _facts(options: argparse.Namespace, setting: Setting, rate: float) -> Json:
    return {
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "texts": len(setting.examples),
        "data": options.data.name if options.data else "made-up sentences",
        "clients": setting.load.clients,
        "rate": rate,
        "seconds": setting.load.seconds,
        "server_cores": len(setting.cores.servers),
        "load_shares_cores": bool(setting.cores.servers & setting.cores.load),
        "machine_load": os.getloadavg()[1],
    }


def _write(lines: list[Line], facts: Json, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [asdict(line) for line in lines]
    for row in rows:
        del row["heavy"]["labels"]
    (folder / "compare.json").write_text(json.dumps({"run": facts, "lines": rows}, indent=1) + "\n")
    (folder / "compare.md").write_text(table_text(lines, facts) + "\n")


if __name__ == "__main__":
    sys.exit(main())
