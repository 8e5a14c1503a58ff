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
from functools import partial
from pathlib import Path

from rich.console import Console

from loadtest.compare.contenders import Contender, ServedModel, contenders
from loadtest.compare.cores import share_cores
from loadtest.compare.loads import ClosedLoop
from loadtest.compare.measure import Setting, measure_fixed, measure_saturated
from loadtest.http.client import Json
from loadtest.http.console import print_text, run_command
from loadtest.load.texts import Example, NoTexts, load_texts, made_up
from models.quality.page import table
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
        lines, labels = list[Json](), list[tuple[str, ...]]()
        for contender in found:
            line, said = measure_saturated(contender, setting)
            lines.append(line)
            labels.append(said)
            report(f"{contender.name}: {line['per_second']:.0f} requests/s")
        rate = options.rate or _SHARE_OF_SLOWEST * min(line["per_second"] for line in lines)
        for contender, line in zip(found, lines, strict=True):
            line.update(measure_fixed(contender, setting, rate))
            report(f"{contender.name}: p99 {line['p99_ms']:.0f} ms at {rate:.0f} requests/s")
    full = next(
        (said for c, said in zip(found, labels, strict=True) if "fp32" in c.name), labels[0]
    )
    for line, said in zip(lines, labels, strict=True):
        line["accuracy"] = _accuracy(chosen, said, bundle.manifest.labels)
        line["agreement"] = sum(a == b for a, b in zip(full, said, strict=True)) / len(full)
    facts = _facts(options, setting, rate)
    text = table_text(lines, facts)
    options.out.mkdir(parents=True, exist_ok=True)
    document = {"run": facts, "lines": lines}
    (options.out / "compare.json").write_text(json.dumps(document, indent=1) + "\n")
    (options.out / "compare.md").write_text(text + "\n")
    report(text)
    return 0


def _check(examples: Sequence[Example], bundle: Bundle, found: list[Contender]) -> None:
    task = bundle.manifest.task
    if any(not isinstance(example.inputs, str) for example in examples):
        raise NoTexts("the servers that are compared take single texts, and these are pairs")
    if task != "single_label":
        raise NoTexts(f"only single-label models are compared, not {task}")
    if not found:
        raise NoTexts("no contender has that in its name")


def _accuracy(
    examples: Sequence[Example], said: Sequence[str], labels: tuple[str, ...]
) -> float | None:
    """Return the share of right labels; None without labels."""
    pairs = zip(examples, said, strict=True)
    known = [r for example, each in pairs if (r := example.right(each, labels)) is not None]
    return sum(known) / len(known) if known else None


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


def table_text(lines: Sequence[Json], facts: Json) -> str:
    """Return the table and the facts that a reader needs."""
    what = "accuracy" if any(line["accuracy"] is not None for line in lines) else "agreement"
    rows = [
        [
            line["name"],
            None if line[what] is None else f"{100 * line[what]:.2f}",
            *(line[name] for name in ("mean_layer", "per_second", "p50_ms", "p99_ms")),
            *(line["cpu_s_per_1000"], round(line["memory_mb"])),
        ]
        for line in lines
    ]
    at = f"p50 ms at {facts['rate']:.0f}/s"
    head = ("mean exit", "requests/s", at, "p99 ms", "CPU s per 1,000", "MB")
    failed = sum(line["failed"] for line in lines)
    late_ms = max(line["late_ms"] for line in lines)
    costs = [line["load_cpu_s_per_1000"] for line in lines]
    shared = ", which the load shares" if facts["load_shares_cores"] else ""
    return (
        f"{table(('server', f'{what} %', *head), rows)}\n\n"
        f"{facts['texts']} texts of {facts['data']}; {facts['server_cores']} core(s) "
        f"and as many threads a server{shared}; closed loop of {facts['clients']} clients, then "
        f"an open loop (Poisson). The load cost {min(costs):.2f} to {max(costs):.2f} CPU s per "
        f"1,000 requests, was at most {late_ms:.0f} ms late, and {failed} of its requests failed. "
        f"Load of the machine before: {facts['machine_load']:.1f}. {facts['date']}."
    )


if __name__ == "__main__":
    sys.exit(main())
