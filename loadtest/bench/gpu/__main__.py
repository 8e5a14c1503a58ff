"""`python -m loadtest.bench.gpu [BUNDLE]`: one run of ten minutes that answers everything."""

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from loadtest.bench.gpu.baselines import measure_baselines
from loadtest.bench.gpu.correctness import measure_correctness
from loadtest.bench.gpu.device_variant import Place, load, reference, variants
from loadtest.bench.gpu.facts import device_facts, measure_facts
from loadtest.bench.gpu.memory import measure_memory
from loadtest.bench.gpu.plan import Figures, Step, lines_table, run_plan, show
from loadtest.bench.gpu.random_bundle import random_bundle
from loadtest.bench.gpu.shapes import device_times, measure_shapes
from loadtest.bench.gpu.subject import Subject, subject_of
from loadtest.bench.gpu.subsets import measure_subsets
from loadtest.bench.gpu.throughput import measure_throughput
from loadtest.bench.gpu.verdict import verdict
from loadtest.bench.machine import machine_facts
from serve.bundle.loader import Bundle, load_bundle
from serve.classifier.classifier import SWITCH_INTERVAL_S
from serve.errors import OfframpError
from serve.runtime import cuda_provider as cuda
from serve.runtime.hardware import available_threads

Measure = Callable[[Subject, Figures, float], None]

# In this order; each step's share of the seconds that are left once the model is loaded.
PLAN: tuple[tuple[str, float, Measure], ...] = (
    ("facts", 20, measure_facts),
    ("correctness", 40, measure_correctness),
    ("shapes", 60, measure_shapes),
    ("baselines", 80, measure_baselines),
    ("subsets", 60, measure_subsets),
    ("throughput", 120, measure_throughput),
    ("memory", 20, measure_memory),
)
# A step may overrun its share a little, and the last one too.
_SHARE = 0.95
_BUILT = Path("build/gpu/bert-base")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the plan, print what it finds, and return 0 if nothing was wrong."""
    began = perf_counter()
    options = _parser().parse_args(arguments)
    # An interrupted run has printed all that it found, also to a file or a pipe.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    try:
        if options.device == "cuda":
            cuda.require()
        bundle = load_bundle(options.bundle) if options.bundle else random_bundle(_BUILT)
        document = examine(bundle, options, began + _SHARE * options.seconds)
    except (OfframpError, OSError) as error:
        print(f"gpu: FAILED: {error}")
        return 1
    _print_verdict(document["verdict"])
    if document["problems"]:
        print(f"gpu: FAILED: {'; '.join(document['problems'])}")
        return 1
    where = document["gpu"]["name"] if document["gpu"] else document["device"]
    print(f"gpu: {document['precision']} passed on {where}")
    return 0


def examine(bundle: Bundle, options: argparse.Namespace, end_s: float) -> dict[str, Any]:
    """Run the plan on the bundle's variant for GPUs; return the JSON document.

    Args:
        bundle: to be examined.
        options: of the command line.
        end_s: on `perf_counter`.

    Raises:
        OfframpError: there is nothing to examine, or it cannot be loaded.
        OSError: the document cannot be written.
    """
    place = Place(options.device, options.attention_kernels)
    document: dict[str, Any] = {**device_facts(bundle, place)}
    document |= machine_facts(available_threads())
    document |= {"layers": bundle.manifest.num_layers, "steps": {}, "problems": []}
    save = partial(_save, document, options.json)
    save()  # a file that cannot be written is an error before anything runs
    show({key: value for key, value in document.items() if key not in ("steps", "verdict")})
    precision = next(iter(variants(bundle)), None)
    if precision is None:
        raise OfframpError("the bundle has no variant for GPUs: export it with --precision fp16")
    if len(bundle.manifest.exit_layers) < 2:
        raise OfframpError("the bundle has one exit: no row can leave early")
    document["precision"] = precision
    # The reference is loaded first: loading puts the process's memory in order.
    expected = reference(bundle)
    variant = load(bundle, precision, place)
    if options.device == "cuda":
        sys.setswitchinterval(SWITCH_INTERVAL_S)  # as the server does
    with subject_of(variant, expected, options.one_graph) as subject:
        steps = [
            Step(name, seconds, partial(measure, subject))
            for name, seconds, measure in PLAN
            if name in options.steps
        ]
        run_plan(steps, document, save, end_s)
    return document


def _save(document: dict[str, Any], path: Path | None) -> None:
    """Write the document whole or not at all, with what follows from its figures so far."""
    document["verdict"] = verdict(document)
    if times := device_times(document):
        document["device_times"] = times
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        part.write_text(json.dumps(document, indent=2) + "\n")
        os.replace(part, path)


def _print_verdict(found: dict[str, Any]) -> None:
    if lines := found["table"]:
        print(f"\n{lines_table(lines)}")
    print(found["sentence"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.gpu", description=__doc__)
    parser.add_argument(
        "bundle",
        type=Path,
        nargs="?",
        help=f"a bundle with fp16 and fp32; if none is named, BERT-base is built in {_BUILT}",
    )
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries the code without a GPU"
    )
    parser.add_argument("--json", type=Path, help="write everything to this file, as it is found")
    parser.add_argument(
        "--one-graph",
        type=Path,
        help="folder from `python -m loadtest.bench.one_graph`, for a host without onnx",
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="for everything")
    names = [name for name, _, _ in PLAN]
    parser.add_argument("--steps", nargs="+", choices=names, default=names, help="only these")
    parser.add_argument(
        "--attention-kernels",
        type=int,
        default=cuda.ATTENTION_KERNELS,
        help="kernels for attention on CUDA, as ONNX Runtime's sdpa_kernel; 0 for its own choice",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
