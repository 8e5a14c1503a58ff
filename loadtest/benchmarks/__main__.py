"""Offramp beside the servers that people use, on one machine, with the same requests.

Each server gets one core and one thread, the load another core. Rounds go in opposite order. What
is measured stays in a file, so the command goes on where it was stopped.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from loadtest.benchmarks.cells import Cells, Key
from loadtest.benchmarks.contenders import Contender, offramp, peers
from loadtest.benchmarks.cores import on, share_cores
from loadtest.benchmarks.environments import NotInstalled, install, write_whole_model
from loadtest.benchmarks.figures import BALANCED, FAST, NEVER
from loadtest.benchmarks.measure import LEFT_OUT, Run, Suite, WrongAnswers, expected_s, measure
from loadtest.benchmarks.page import write_page, write_readme
from loadtest.benchmarks.peers import whole_model
from loadtest.http.console import print_text, run_command
from loadtest.http.server_process import ServerFailed
from loadtest.load.texts import Example, load_texts, made_up
from serve.bundle.loader import Bundle, load_bundle

_MAIN = ("sst2-minilm", "sst2")
_OTHERS = (("sst2-mpnet", "sst2"), ("sst2-cascade", "sst2"), ("agnews-minilm", "agnews"))
_LONG = "long texts"
_FEW = ("ONNX Runtime + FastAPI", "mosec", NEVER, BALANCED, FAST)
_ALL_LOADS = ((1, 1), (16, 1), (64, 1), (16, 32))
_FEW_LOADS = ((16, 1), (64, 1))
_BOUNDS_MS = (50, 100)
# pytriton fails with some others (docs/load-testing.md).
_SYSTEM = "/usr/bin/python3.11"
_FEWER = 4  # texts of the suites beside the first are so many times fewer


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing and write the page."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.benchmarks", description=__doc__)
    parser.add_argument("--bundles", type=Path, default=Path("bundles"))
    parser.add_argument("--models", type=Path, default=Path("models/zoo"), help="checkpoints")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", default="", help="suite/contender with this in it")
    parser.add_argument("--first", action="store_true", help="the first table alone")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load (5)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--texts", type=int, default=872, help="at most (872)")
    python = _SYSTEM if Path(_SYSTEM).exists() else sys.executable
    parser.add_argument("--python", default=python, help="makes the peers' environments")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"))
    parser.add_argument("--cells", type=Path, help="figures, each a line (OUT/cells.jsonl)")
    parser.add_argument("--page", type=Path, help="the page to write (OUT/benchmarks.md)")
    parser.add_argument("--readme", type=Path, help="whose table to write, between its marks")
    options, console = parser.parse_args(arguments), Console()
    return run_command("benchmarks", console, partial(_benchmarks, options, console))


def _benchmarks(options: argparse.Namespace, console: Console) -> int:
    began_s, text = time.monotonic(), partial(print_text, console)

    def report(line: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - began_s), 60)
        text(f"{minutes:3d}:{seconds:02d}  {line}")

    settings = {"seconds": options.seconds, "texts": options.texts}
    cells = Cells(options.cells or options.out / "cells.jsonl", settings)
    run = Run(cells, share_cores(1), options.seconds, report)
    suites = list(_suites(options, report))
    missing = (
        expected_s(cells.missing(suite.name, each.name, round_, suite.loads()), options.seconds)
        for suite, found in suites
        for round_ in range(options.rounds)
        for each in found
    )
    report(f"about {sum(missing) / 60:.0f} minutes, and those of installing")
    for suite, found in suites:
        for round_ in range(options.rounds):
            for contender in found[:: -1 if round_ % 2 else 1]:
                try:
                    if contender.environment:
                        install(contender, options.out, options.python, report)
                    measure(contender, suite, round_, run)
                except (NotInstalled, ServerFailed, WrongAnswers) as error:
                    why = str(error).rstrip().splitlines()
                    cells.add(Key(suite.name, contender.name, round_, LEFT_OUT), {"why": why[-1]})
                    report(f"{suite.name}, {contender.name}: {error}")
    page = options.page or options.out / "benchmarks.md"
    found = options.bundles / _MAIN[0]
    described = _contenders(options, *_MAIN) if found.exists() else []
    write_page(page, cells, {each.name: each for each in described})
    if options.readme:
        write_readme(options.readme, cells)
    report(f"the page is {page}")
    return 0


def _suites(
    options: argparse.Namespace, report: Callable[[str], None]
) -> Iterator[tuple[Suite, list[Contender]]]:
    """Yield each suite that a bundle is there for, with its contenders."""
    for place, (name, data) in enumerate((_MAIN, *_OTHERS, _MAIN)):
        suite = _LONG if place == len(_OTHERS) + 1 else name
        if place and options.first:
            return
        folder = options.bundles / name
        if not (folder / "manifest.json").exists():
            report(f"{suite} is left out: there is no {folder} (make zoo/{name})")
            continue
        found = [
            each
            for each in _contenders(options, name, data)
            if options.only in f"{suite}/{each.name}" and (not place or each.name in _FEW)
        ]
        if not found:
            continue
        bundle, file = load_bundle(folder), options.data / data / "dev.tsv"
        examples = load_texts(file) if file.exists() else made_up()
        num = min(len(examples), options.texts // (_FEWER if place else 1))
        examples = tuple(random.Random(0).sample(examples, num))
        if suite == _LONG:
            examples = _long(examples, num)
        expected = _expected(bundle, options.out / "models" / name, examples)
        if not place:
            write_whole_model(bundle, options.out / "models" / name / "fp32", "fp32")
        loads = (_FEW_LOADS, ()) if place or options.first else (_ALL_LOADS, _BOUNDS_MS)
        yield Suite(suite, examples, bundle.manifest.labels, expected, *loads), found


def _contenders(options: argparse.Namespace, name: str, data: str) -> list[Contender]:
    profiles = tuple(load_bundle(options.bundles / name).manifest.policy.profiles)
    variables = {
        "MODEL": (options.out / "models" / name).resolve(),
        "FP32": (options.out / "models" / name / "fp32").resolve(),
        "CHECKPOINT": (options.models / name).resolve(),
        "TRAIN": (options.data / data / "train.tsv").resolve(),
    }
    found = [*peers(options.out, variables), *offramp(options.bundles / name, profiles)]
    # What is compared most is measured close together: a shared machine's speed drifts.
    return sorted(found, key=lambda each: each.name not in _FEW)


def _long(examples: Sequence[Example], num: int) -> tuple[Example, ...]:
    """Return texts of 512 tokens: sentences one after the other, without a right label."""
    texts = [str(example.inputs) for example in examples] * 2
    return tuple(Example(" ".join(texts[place : place + 60])) for place in range(num))


def _expected(bundle: Bundle, folder: Path, examples: Sequence[Example]) -> list[str]:
    """Return the whole model's label of each text."""
    os.environ["MODEL"] = str(write_whole_model(bundle, folder))
    with on(share_cores(1).load):
        found = whole_model.WholeModel().classify([str(each.inputs) for each in examples])
    return [result["label"] for result in found]


if __name__ == "__main__":
    sys.exit(main())
