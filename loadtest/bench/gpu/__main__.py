"""`python -m loadtest.bench.gpu BUNDLE`: parity, invariance, times and throughput on a GPU."""

import argparse
import io
import json
import sys
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from loadtest.bench.gpu.checks import Finding, check_invariance, check_parity
from loadtest.bench.gpu.device_variant import (
    NUM_THREADS,
    DeviceVariant,
    Place,
    load,
    reference,
    variants,
)
from loadtest.bench.gpu.facts import device_facts, operators, strays
from loadtest.bench.gpu.printing import (
    print_facts,
    print_finding,
    print_operators,
    print_sizes,
    print_throughput,
    print_times,
)
from loadtest.bench.gpu.throughput import measure_throughput
from loadtest.bench.gpu.timing import time_batch_sizes, time_shapes
from loadtest.bench.machine import machine_facts
from loadtest.bench.one_graph_session import OneGraph
from serve.bundle.loader import Bundle, load_bundle
from serve.errors import OfframpError
from serve.runtime import cuda_provider as cuda
from serve.runtime.cpu_runner import CpuRunner

_Problems = list[str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything, print it, and return 0 if nothing was wrong."""
    options = _parser().parse_args(arguments)
    # An interrupted run has printed all that it found, also to a file or a pipe.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    try:
        document = examine(load_bundle(options.bundle), options)
    except (OfframpError, OSError) as error:
        print(f"gpu: FAILED: {error}")
        return 1
    if document["problems"]:
        print(f"gpu: FAILED: {'; '.join(document['problems'])}")
        return 1
    where = document["gpu"]["name"] if document["gpu"] else document["device"]
    print(f"gpu: {' and '.join(document['variants'])} passed on {where}")
    return 0


def examine(bundle: Bundle, options: argparse.Namespace) -> dict[str, Any]:
    """Check and measure every variant that a GPU may run; return the JSON document.

    An error in one variant is a problem of that variant only. The document is written after each
    step.
    """
    if options.device == "cuda":
        cuda.require()
    place = Place(options.device, options.attention_kernels)
    document: dict[str, Any] = {**device_facts(bundle, place), **machine_facts(NUM_THREADS)}
    problems: _Problems = []
    document |= {"variants": {}, "problems": problems}
    save = partial(_write, document, options.json)
    save()  # a file that cannot be written is an error before anything runs
    print_facts(document)
    # Loaded before anything is on the device: loading puts the process's memory in order.
    expected = reference(bundle)
    for precision in variants(bundle):
        print(f"\n== {precision}")
        found = document["variants"].setdefault(precision, {})
        try:
            for wrong in _steps(load(bundle, precision, place), expected, options, found):
                problems += [f"{precision}: {problem}" for problem in wrong]
                save()
        except Exception as error:  # ONNX Runtime's errors have no common type
            traceback.print_exc()
            reason, *_ = str(error).split("\n")
            problems.append(f"{precision}: {type(error).__name__}: {reason}")
            save()
    if not document["variants"]:
        problems.append("the bundle has no variant for GPUs: export it with --precision fp32,fp16")
        save()
    return document


def _write(document: dict[str, Any], path: Path | None) -> None:
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2) + "\n")


def _steps(
    variant: DeviceVariant,
    expected: CpuRunner,
    options: argparse.Namespace,
    found: dict[str, Any],
) -> Iterator[_Problems]:
    """Add each step's findings to `found`, then yield what is wrong."""
    assigned = found["operators"] = operators(variant)
    print_operators(assigned)
    wrong = strays(assigned) if variant.place.device == "cuda" else []
    yield [f"{kind} does not run on the GPU" for kind in wrong]
    findings = found["findings"] = []
    for check in (
        lambda: check_parity(variant, expected),
        lambda: check_invariance(variant, options.rows),
    ):
        finding = check()
        print_finding(finding)
        findings.append(finding._asdict())
        yield _wrong(finding)
    if options.seconds:
        yield from _measured(variant, options, found)


def _measured(
    variant: DeviceVariant, options: argparse.Namespace, found: dict[str, Any]
) -> Iterator[_Problems]:
    one_graph = None
    path = options.one_graph and options.one_graph / variant.precision / "one_graph.onnx"
    if path and path.is_file():
        one_graph = OneGraph(variant.place.opener()(path))
    for name, measure, show in (
        ("times", partial(time_shapes, variant, one_graph), print_times),
        ("batch_sizes", partial(time_batch_sizes, variant), print_sizes),
        ("throughput", partial(measure_throughput, variant), print_throughput),
    ):
        figures: Any = measure(options.seconds)
        found[name] = [figure._asdict() for figure in figures]
        show(figures)
        yield []


def _wrong(finding: Finding) -> _Problems:
    if finding.passed:
        return []
    return [
        f"{finding.check}: a logit differs by {finding.max_error:.3g} (at most "
        f"{finding.tolerance:g}; {finding.worst}), {finding.agreement:.2%} of {finding.answers} "
        "answers agree"
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.gpu", description=__doc__)
    parser.add_argument("bundle", type=Path, help="a bundle with fp32, fp16 or both")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries the code without a GPU"
    )
    parser.add_argument("--json", type=Path, help="write everything to this file")
    parser.add_argument(
        "--one-graph", type=Path, help="folder from `python -m loadtest.bench.one_graph`"
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="for each figure; 0 for the checks alone"
    )
    parser.add_argument(
        "--attention-kernels",
        type=int,
        default=cuda.ATTENTION_KERNELS,
        help="kernels for attention on CUDA, as ONNX Runtime's sdpa_kernel; 0 for its own choice",
    )
    parser.add_argument("--rows", type=int, default=400, help="texts in the check of invariance")
    return parser


if __name__ == "__main__":
    sys.exit(main())
