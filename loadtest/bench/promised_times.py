"""Is the time that a target promises taken?

`python -m loadtest.bench.promised_times BUNDLE --data FILE`. Every text goes through the engine
alone, once for each target. The texts should be of the kind that certified the bundle, and the
machine otherwise idle.
"""

import argparse
import asyncio
import json
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from rich.console import Console

from loadtest.bench.errors import BenchFailed
from loadtest.http.console import print_text, run_command
from loadtest.load.texts import load_texts
from models.report.markdown import table
from serve.assembly import assemble
from serve.bundle.loader import load_bundle
from serve.bundle.manifest import Precision
from serve.classifier.classification import Classification
from serve.classifier.classifier import Classifier
from serve.classifier.classify_request import ClassifyRequest, TextInput
from serve.classifier.options import EngineOptions
from serve.errors import TargetOutOfReach
from serve.policy.database import Database
from serve.policy.limits import Limits
from serve.policy.resolution import ServedRung
from serve.policy.target import Target, TargetChoice
from serve.runtime.hardware import available_threads

BAR = 0.15
_NUM_TEXTS = 400
_WARM_UP = 30  # texts that are not counted
_STOP_S = 10.0

Bounds: TypeAlias = dict[str, float]

# The first is full depth.
TARGETS: tuple[Bounds, ...] = (
    {"speedup": 1},
    {"speedup": 1.5},
    {"speedup": 2},
    {"speedup": 3},
    {"max_layers": 2},
    {"max_disagreement": 0.01},
    {"max_disagreement": 0.03},
)


class Kept(NamedTuple):
    """What a target promised, and what was taken; each pair is (promised, taken)."""

    target: Bounds  # what was asked for
    rule: dict[str, Any]  # what it became
    layers: tuple[float, float]  # mean per text
    ms: tuple[float, float]  # mean from a text's first layer to its answer
    speedup: tuple[float, float]  # over full depth

    @property
    def deviation(self) -> float:
        """The larger of how far time and speedup are from what was promised, as a share."""
        return max(abs(taken / promised - 1) for promised, taken in (self.ms, self.speedup))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every precision that this machine's CPU runs; return 0 if that was possible."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.bench.promised_times", description=__doc__
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="texts, see docs/load-testing.md")
    parser.add_argument("--threads", type=int, default=available_threads())
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options, console = parser.parse_args(arguments), Console()
    return run_command("benchmark", console, partial(_bench, options, console))


def _bench(options: argparse.Namespace, console: Console) -> int:
    texts, found = _texts(options.data), {}
    for precision in load_bundle(options.bundle).manifest.variants:
        if precision != "fp16":
            rows = measure(options.bundle, precision, options.threads, texts)
            print_text(console, f"{precision}: promised -> taken\n\n{_table(rows)}\n")
            found[precision] = [kept._asdict() for kept in rows]
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


def _texts(file: Path) -> list[str | TextInput]:
    examples = random.Random(0).sample(found := load_texts(file), min(_NUM_TEXTS, len(found)))
    return [
        inputs if isinstance(inputs := example.inputs, str) else TextInput(**inputs)
        for example in examples
    ]


def _table(rows: Sequence[Kept]) -> str:
    """Return promised and taken figures of each target."""
    cells = [
        [
            ", ".join(f"{name} {bound:g}" for name, bound in kept.target.items()),
            " ".join(map(str, kept.rule.values())),
            *(f"{a:.2f} -> {b:.2f}" for a, b in (kept.layers, kept.ms, kept.speedup)),
            f"{kept.deviation:.0%}",
        ]
        for kept in rows
    ]
    worst = max(kept.deviation for kept in rows)
    verdict = "met" if worst <= BAR else "missed"
    head = ("target", "rule", "layers", "ms", "speedup", "off")
    end = f"furthest from a promise: {worst:.0%}; at most {BAR:.0%}: {verdict}"
    return f"{table(head, cells)}\n\n{end}"


def measure(
    bundle: Path, precision: Precision, num_threads: int, texts: Sequence[str | TextInput]
) -> list[Kept]:
    """Send every text alone, through the engine but not over HTTP, once for each target.

    Targets that the model cannot have on this machine are left out.

    Raises:
        BenchFailed: nothing is certified for this precision.
    """
    options = EngineOptions(device="cpu", precision=precision, num_threads=num_threads)
    catalog = assemble([bundle], options, Database()).catalog
    catalog.set_baselines({})
    (classifier,) = catalog
    if classifier.ladder.uncertified:
        raise BenchFailed(classifier.ladder.uncertified)
    catalog.start()
    try:
        return asyncio.run(_measure(classifier, texts))
    finally:
        catalog.stop(_STOP_S)


async def _measure(classifier: Classifier, texts: Sequence[str | TextInput]) -> list[Kept]:
    applied = classifier.policy.live.applied
    rungs: dict[int, ServedRung] = {}
    targets = [*TARGETS, *_as_milliseconds(classifier)]
    for place, bounds in enumerate(targets):
        try:
            resolution = applied.exit_for(_choice(bounds)).resolution
        except TargetOutOfReach:
            continue
        if resolution:
            rungs[place] = resolution.rung
    taken: dict[int, list[tuple[float, int]]] = defaultdict(list)
    draw = random.Random(0)
    for turn, text in enumerate([*draw.choices(texts, k=_WARM_UP), *texts]):
        for place in draw.sample(list(rungs), len(rungs)):
            asked = ClassifyRequest(inputs=text, exit=_choice(targets[place]), truncate=True)
            request = Classification(asked)
            await classifier.classify(request)
            [answer] = request.answers
            if turn >= _WARM_UP:
                taken[place].append((answer.compute_s, answer.exit_index))
    full_ms = _mean_ms(taken[0])
    exits = np.array(classifier.bundle.manifest.exit_layers)
    return [
        Kept(
            targets[place],
            rung.rule.model_dump(exclude_none=True),
            (rung.expected_layers, float(exits[[index for _, index in taken[place]]].mean())),
            (rung.expected_ms, _mean_ms(taken[place])),
            (rung.speedup, full_ms / _mean_ms(taken[place])),
        )
        for place, rung in rungs.items()
    ]


def _as_milliseconds(classifier: Classifier) -> list[Bounds]:
    """Return targets of two thirds and of a third of full depth's time."""
    full_ms = classifier.ladder.rungs(Limits())[0].expected_ms
    return [{"max_ms": round(share * full_ms, 3)} for share in (2 / 3, 1 / 3)]


def _choice(bounds: Bounds) -> TargetChoice:
    return TargetChoice(target=Target.model_validate(bounds))


def _mean_ms(taken: Sequence[tuple[float, int]]) -> float:
    return 1e3 * float(np.mean([seconds for seconds, _ in taken]))


if __name__ == "__main__":
    sys.exit(main())
