"""Is a bundle right on this GPU, and does leaving early pay there? `python -m loadtest.bench.gpu`.

Compares its answers with the CPU's, and in batches with alone. Times batches until each exit, and
as the whole model: one graph, and the same as a CUDA graph. Answers texts under full load. Without
a bundle, BERT-base with random weights is built. Takes some minutes.
"""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import starmap
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from loadtest.bench.full_load import LONG, SHORT, Line, rates
from loadtest.bench.gpu.variant import (
    TOLERANCE,
    DeviceVariant,
    error_against_cpu,
    error_in_batches,
    load,
    reference,
)
from loadtest.bench.gpu.whole_model import captured, whole_model
from loadtest.bench.inputs import Shape, random_inputs
from loadtest.bench.machine import gpu_name, machine_facts
from loadtest.bench.random_model import BERT_BASE, build
from loadtest.bench.whole_model import Answer
from models.quality.page import table
from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import FOR_GPUS
from serve.classifier.classifier import SWITCH_INTERVAL_S
from serve.classifier.options import BATCH_LIMITS
from serve.engine.warm_up import steps
from serve.errors import OfframpError
from serve.runtime import cuda_provider as cuda
from serve.runtime.hardware import available_threads

BUILT = Path("build/gpu/bert-base")
_SHAPES = {
    "cuda": ((1, 8), (1, 32), (1, 128), (8, 32), (32, 32), (32, 128), (128, 32), (512, 32)),
    "cpu": ((1, 8), (1, 32), (4, 32)),
}
_TOKEN_LIMITS = {"cuda": (2048, 16_384), "cpu": (256,)}
_NUM_ROWS = 200  # of the check in batches
_FEW = 3  # active exits of the second contender


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is found, and return 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.gpu", description=__doc__)
    parser.add_argument("bundle", type=Path, nargs="?", help=f"with fp16 and fp32 ({BUILT})")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a trial")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each figure (0.5)")
    parser.add_argument("--json", type=Path, help="write everything to this file, as it is found")
    options = parser.parse_args(arguments)
    try:
        if options.device == "cuda":
            cuda.require()
            sys.setswitchinterval(SWITCH_INTERVAL_S)  # as the server does
        problems = examine(_bundle(options.bundle), options)
    except (OfframpError, OSError) as error:
        problems = [str(error)]
    print(f"gpu: FAILED: {'; '.join(problems)}" if problems else "gpu: passed")
    return 1 if problems else 0


def examine(bundle: Bundle, options: argparse.Namespace) -> list[str]:
    """Check and measure the bundle's variant for GPUs; return what is wrong.

    Raises:
        OfframpError: there is nothing to examine, or it cannot be loaded.
        OSError: the figures cannot be written.
    """
    precision = next((each for each in FOR_GPUS if each in bundle.manifest.variants), None)
    if precision is None or len(bundle.manifest.exit_layers) < 2:
        raise OfframpError(f"{bundle.name} lacks exits, or a variant for GPUs: --precision fp16")
    facts = {"bundle": bundle.name, "precision": precision, "layers": bundle.manifest.num_layers}
    document: Line = {**facts, "gpu": gpu_name(), **machine_facts(available_threads())}
    _write(document, options.json)
    expected = reference(bundle)  # first: loading puts the process's memory in order
    variant = load(bundle, precision, options.device)
    errors = {
        "logits against fp32 on the CPU": error_against_cpu(variant, expected),
        "logits in batches against alone": error_in_batches(variant, _NUM_ROWS),
    }
    document |= errors
    print("\n".join(f"{name}: {value}" for name, value in document.items()), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        graph = _one_graph(variant, Path(folder))
        whole = whole_model(graph, options.device) if graph else None
        run = Run(variant, graph, whole, options.seconds)
        for name, lines in (("times", run.times()), ("rows per second", run.loads())):
            document[name] = found = list(lines)
            print(f"\n{name}\n{table(list(found[0]), [list(each.values()) for each in found])}")
            _write(document, options.json)
    return [name for name, error in errors.items() if not error <= TOLERANCE]


class Run(NamedTuple):
    """What is measured of one variant."""

    variant: DeviceVariant
    graph: Path | None  # file of the whole model as one graph; None where it cannot be written
    whole: Answer | None  # runs it
    seconds: float  # for each figure

    def times(self) -> Iterator[Line]:
        """Yield the milliseconds of each shape, from texts on the host to logits on the host.

        Leaving pays up to the last exit that is reached before the faster whole model answers.
        """
        variant = self.variant
        for shape in starmap(Shape, _SHAPES[variant.device]):
            if shape.tokens > variant.max_tokens:
                continue
            inputs = random_inputs(shape, variant.vocabulary)
            line = {**shape._asdict(), "whole_ms": None, "captured_ms": None}
            if self.whole:
                line["whole_ms"] = self._ms(partial(map, self.whole, [inputs]))[0]
            if self.graph and variant.device == "cuda":
                try:
                    replay = captured(self.graph, inputs)
                    line["captured_ms"] = self._ms(partial(map, replay, [inputs]))[0]
                except Exception as error:  # ONNX Runtime's errors have no common type
                    print(f"{shape}: no CUDA graph: {error}")
            line["until_ms"] = until = self._ms(partial(steps, variant.chain, *inputs))
            bound = min(line["whole_ms"] or 0.0, line["captured_ms"] or math.inf)
            paying = [e for e, ms in zip(variant.shape.exits, until, strict=True) if ms < bound]
            yield {**line, "pays up to layer": max(paying, default=None)}

    def loads(self) -> Iterator[Line]:
        """Yield rows per second, rows always waiting: the engine, and the whole model."""
        variant, every = self.variant, len(self.variant.chain)
        models = [variant.presenting(number) for number in (every, min(_FEW, every), 1)]
        for most in _TOKEN_LIMITS[variant.device]:
            limits = replace(BATCH_LIMITS[variant.device], max_tokens=most)
            for mean in (SHORT, LONG):
                yield from rates(
                    models, self.whole, variant.vocabulary, variant.max_tokens, limits, mean
                )

    def _ms(self, run: Callable[[], Iterable[object]]) -> list[float]:
        """Return the median milliseconds until each thing that a run gives; two runs warm up."""

        def timed() -> list[float]:
            began = perf_counter()
            return [1e3 * (perf_counter() - began) for _ in run()]

        end, runs = perf_counter() + self.seconds, [timed() for _ in range(3)]
        while perf_counter() < end:
            runs.append(timed())
        return [round(ms, 3) for ms in np.median(runs[2:], axis=0).tolist()]


def _bundle(folder: Path | None) -> Bundle:
    if folder or BUILT.exists():
        return load_bundle(folder or BUILT)
    print(f"building BERT-base with random weights in {BUILT}", flush=True)
    # Heads as those of the shipped models.
    return build(replace(BERT_BASE, pooling="mean", pooler=True), ("fp32", "fp16"), BUILT)


def _one_graph(variant: DeviceVariant, folder: Path) -> Path | None:
    try:
        from loadtest.bench.one_graph import write_one_graph
    except ModuleNotFoundError:  # onnx or onnx-ir
        return None
    return write_one_graph(variant.bundle, variant.precision, folder)


def _write(document: Line, path: Path | None) -> None:
    if path:
        path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
