"""Is the time that a target promises taken?

`python -m loadtest.bench.promised_times BUNDLE --data FILE`. Every text goes through the engine
alone, once for each target. The texts should be of the kind that certified the bundle, and the
machine otherwise idle.
"""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from loadtest.bench.promised_times.measure import Kept, measure
from loadtest.http.console import run_command
from loadtest.load.texts import load_texts
from serve.bundle.loader import load_bundle
from serve.runtime.hardware import available_threads
from serve.tokenization.length_bounds import Text

BAR = 0.15


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every precision that this machine's CPU runs; return 0 if that was possible."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.bench.promised_times", description=__doc__
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="texts, see docs/load-testing.md")
    parser.add_argument("--texts", type=int, default=400, help="how many of them are sent")
    parser.add_argument("--threads", type=int, default=available_threads())
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    return run_command("benchmark", console, partial(_bench, options, console))


def _bench(options: argparse.Namespace, console: Console) -> int:
    texts = _texts(options.data, options.texts)
    found = {}
    for precision in load_bundle(options.bundle).manifest.variants:
        if precision != "fp16":
            found[precision] = measure(options.bundle, precision, options.threads, texts)
            console.print(_table(precision, found[precision]))
    if options.json:
        document = {p: [kept._asdict() for kept in rows] for p, rows in found.items()}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


def _texts(file: Path, most: int) -> list[Text]:
    examples = random.Random(0).sample(found := load_texts(file), min(most, len(found)))
    return [
        Text(inputs) if isinstance(inputs := example.inputs, str) else Text(**inputs)
        for example in examples
    ]


def _table(precision: str, rows: Sequence[Kept]) -> Table:
    """Return promised and taken figures of each target."""
    worst = max(kept.deviation for kept in rows)
    verdict = "met" if worst <= BAR else "missed"
    table = Table(title=f"{precision}: promised -> taken", box=SIMPLE_HEAD, title_justify="left")
    table.caption = f"furthest from a promise: {worst:.0%}; at most {BAR:.0%}: {verdict}"
    for heading in ("target", "rule"):
        table.add_column(heading, overflow="fold")
    for heading in ("layers", "ms", "speedup", "off"):
        table.add_column(heading, justify="right", no_wrap=True)
    for kept in rows:
        table.add_row(
            ", ".join(f"{name} {bound:g}" for name, bound in kept.target.items()),
            " ".join(map(str, kept.rule.values())),
            *(f"{a:.2f} -> {b:.2f}" for a, b in (kept.layers, kept.ms, kept.speedup)),
            f"{kept.deviation:.0%}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
