"""Offramp beside what people use instead, on one machine, with the same requests.

Everybody gets a server process of its own on the same cores with the same number of threads;
the load comes from another core. First each is saturated (closed loop), then each is asked at
one fixed rate that all can bear (open loop, the same arrivals).
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
from pathlib import Path

from rich.console import Console

from loadtest.compare.contenders import Contender, Subject, contenders
from loadtest.compare.cores import share_cores
from loadtest.compare.loads import Closed
from loadtest.compare.measure import Fixed, Saturated, Setting, WrongAnswers
from loadtest.compare.rounds import Clock, Rounds
from loadtest.compare.table import Line, table_text
from loadtest.http.client import Json
from loadtest.http.console import complain
from loadtest.http.interruption import interrupt_on_signals
from loadtest.http.server_process import ServerFailed
from loadtest.load.texts import Example, NoTexts, load_texts, made_up
from serve.bundle.loader import Bundle, load_bundle
from serve.errors import OfframpError

# Of what the slowest bears: a load at which nobody's queue grows.
_SHARE_OF_SLOWEST = 0.6


def main(arguments: list[str] | None = None) -> int:
    """Compare and print the table."""
    options = _options(arguments)
    console = Console()
    interrupt_on_signals()
    try:
        _compare(options, console)
    except (NoTexts, OfframpError, ServerFailed, WrongAnswers) as error:
        complain(console, f"the comparison failed: {error}")
        return 1
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.compare", description=__doc__)
    parser.add_argument("bundle", type=Path, help="bundle with fp32, and int8 if it should compete")
    parser.add_argument("--model", type=Path, help="its checkpoint, for the transformers pipeline")
    parser.add_argument("--data", type=Path, help="TSV with labels; else agreement is measured")
    parser.add_argument("--texts", type=int, default=872, help="how many texts at most (872)")
    parser.add_argument("--clients", type=int, default=16, help="of the closed loop (16)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each load at least (8)")
    parser.add_argument(
        "--limit-seconds", type=float, default=120.0, help="of a closed loop at most (120)"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=10.0,
        help="of all; then the rest is left out (10)",
    )
    parser.add_argument("--rate", type=float, help="of the open loop (0.6 of the slowest's best)")
    parser.add_argument("--server-cores", type=int, help="cores of a server (all but one)")
    parser.add_argument("--no-ray", action="store_true", help="leave out Ray Serve")
    parser.add_argument("--only", default="", help="only contenders whose name has this in it")
    parser.add_argument("--out", type=Path, default=Path("build/compare"), help="(build/compare)")
    return parser.parse_args(arguments)


def _compare(options: argparse.Namespace, console: Console) -> None:
    examples = load_texts(options.data) if options.data else made_up()
    _check_texts(examples)
    cores = share_cores(options.server_cores)
    load = Closed(options.clients, options.seconds, options.limit_seconds)
    chosen = random.Random(0).sample(examples, min(options.texts, len(examples)))
    setting = Setting(chosen, cores, load)
    rounds = Rounds(setting, Clock(options.minutes), lambda message: _tell(console, message))
    with tempfile.TemporaryDirectory() as folder:
        bundle = load_bundle(options.bundle)
        subject = Subject(bundle, options.model, len(cores.servers), Path(folder))
        found = [c for c in contenders(subject, not options.no_ray) if options.only in c.name]
        _check_contest(bundle, found)
        saturated = rounds.saturate(found)
        measured = {s.name for s in saturated}
        found = [contender for contender in found if contender.name in measured]
        rate = options.rate or _SHARE_OF_SLOWEST * min(s.per_second for s in saturated)
        fixed = rounds.fix(found, rate)
    labels = bundle.manifest.labels
    lines = _lines(saturated, fixed, chosen, labels)
    facts = _facts(options, setting, rate)
    _write(lines, facts, options.out)
    console.print(table_text(lines, facts), highlight=False, markup=False, soft_wrap=True)


def _check_texts(examples: Sequence[Example]) -> None:
    if any(not isinstance(example.inputs, str) for example in examples):
        raise NoTexts("the servers that are compared take single texts, and these are pairs")


def _check_contest(bundle: Bundle, found: list[Contender]) -> None:
    if bundle.manifest.task != "single_label":
        task = bundle.manifest.task
        raise NoTexts(f"only single-label models are compared, not {task}")
    if not found:
        raise NoTexts("no contender has that in its name")


def _lines(
    saturated: list[Saturated],
    fixed: list[Fixed | None],
    examples: list[Example],
    labels: tuple[str, ...],
) -> list[Line]:
    """Put speed and accuracy side by side; without labels, agreement with full depth in fp32."""
    full = next((s.said for s in saturated if "fp32" in s.name), saturated[0].said)
    lines = []
    for heavy, light in zip(saturated, fixed, strict=True):
        pairs = list(zip(examples, heavy.said, strict=True))
        known = [example.right(said, labels) for example, said in pairs if example.label]
        right = sum(known) / len(known) if known else None
        agreed = sum(a == b for a, b in zip(full, heavy.said, strict=True)) / len(full)
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
        del row["heavy"]["said"]
    (folder / "compare.json").write_text(json.dumps({"run": facts, "lines": rows}, indent=1) + "\n")
    (folder / "compare.md").write_text(table_text(lines, facts) + "\n")


def _tell(console: Console, message: str) -> None:
    console.print(message, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
