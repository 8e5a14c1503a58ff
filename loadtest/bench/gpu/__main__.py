"""`python -m loadtest.bench.gpu BUNDLE`: parity, invariance, times and throughput on a GPU."""

import argparse
import io
import json
import sys
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from loadtest.bench.gpu.checks import Finding, check_invariance, check_parity
from loadtest.bench.gpu.facts import facts, operators, strays
from loadtest.bench.gpu.loaded_bundle import Place, Subject, load, reference, variants
from loadtest.bench.gpu.printing import (
    print_facts,
    print_finding,
    print_operators,
    print_sizes,
    print_throughput,
    print_times,
)
from loadtest.bench.gpu.throughput import measure_throughput
from loadtest.bench.gpu.timing import OneGraph, time_batch_sizes, time_shapes
from serve.bundle.loader import Bundle, load_bundle
from serve.errors import OfframpError
from serve.runtime import cuda_provider as cuda
from serve.runtime.cpu_runner import CpuRunner

_Problems = list[str]


class Report(NamedTuple):
    """The JSON document, and what was found wrong."""

    document: dict[str, Any]
    problems: list[str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything, print it, and return 0 if nothing was wrong."""
    wanted = _parser().parse_args(arguments)
    # Whoever ends it in the middle has seen what was found until then, also in a file or a pipe.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    try:
        report = examine(load_bundle(wanted.bundle), wanted)
    except (OfframpError, OSError) as error:
        print(f"gpu_check: FAILED: {error}")
        return 1
    if report.problems:
        print(f"gpu_check: FAILED: {'; '.join(report.problems)}")
        return 1
    checked = " and ".join(report.document["variants"])
    print(f"gpu_check: {checked} as it should be on {_name(report.document)}")
    return 0


def examine(bundle: Bundle, wanted: argparse.Namespace) -> Report:
    """Check and measure every variant that a GPU may run.

    What fails in one of them is a problem of that one. The document is written after each step,
    with what was found until then.
    """
    if wanted.device == "cuda":
        cuda.require()
    place = Place(wanted.device, wanted.attention_kernels)
    document: dict[str, Any] = {**facts(bundle, place), "variants": {}, "problems": []}
    problems: _Problems = document["problems"]
    save = partial(_write, document, wanted.json)
    save()  # a file that cannot be written is said at once
    print_facts(document)
    # Before there is anything on the device: it puts the process's memory in order.
    expected = reference(bundle)
    for precision in variants(bundle):
        print(f"\n== {precision}")
        found = document["variants"].setdefault(precision, {})
        try:
            for wrong in _steps(load(bundle, precision, place), expected, wanted, found):
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
    return Report(document, problems)


def _write(document: dict[str, Any], path: Path | None) -> None:
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2) + "\n")


def _steps(
    subject: Subject, expected: CpuRunner, wanted: argparse.Namespace, found: dict[str, Any]
) -> Iterator[_Problems]:
    """Yield after each step what is wrong with a variant, and leave in `found` what was found."""
    assigned = found["operators"] = operators(subject)
    print_operators(assigned)
    wrong = strays(assigned) if subject.place.device == "cuda" else []
    yield [f"{kind} does not run on the GPU" for kind in wrong]
    findings = found["findings"] = []
    for check in (
        lambda: check_parity(subject, expected),
        lambda: check_invariance(subject, wanted.rows),
    ):
        finding = check()
        print_finding(finding)
        findings.append(finding._asdict())
        yield _wrong(finding)
    if wanted.seconds:
        yield from _measured(subject, wanted, found)


def _measured(
    subject: Subject, wanted: argparse.Namespace, found: dict[str, Any]
) -> Iterator[_Problems]:
    one_graph = None
    path = wanted.one_graph and wanted.one_graph / subject.precision / "one_graph.onnx"
    if path and path.is_file():
        one_graph = OneGraph(path, subject.place.opener())
    times = time_shapes(subject, one_graph, wanted.seconds)
    found["times"] = [time._asdict() for time in times]
    print_times(times)
    yield []
    sizes = time_batch_sizes(subject, wanted.seconds)
    found["batch_sizes"] = [size._asdict() for size in sizes]
    print_sizes(sizes)
    yield []
    rates = measure_throughput(subject, wanted.seconds)
    found["throughput"] = [rate._asdict() for rate in rates]
    print_throughput(rates)
    yield []


def _wrong(finding: Finding) -> _Problems:
    if finding.passed:
        return []
    return [
        f"{finding.check}: a logit differs by {finding.max_error:.3g} (at most "
        f"{finding.tolerance:g}; {finding.worst}), {finding.agreement:.2%} of {finding.answers} "
        "answers agree"
    ]


def _name(document: dict[str, Any]) -> str:
    told = document["gpu"]
    return told["name"] if told else document["device"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.gpu", description=__doc__)
    parser.add_argument("bundle", type=Path, help="a bundle with fp32, fp16 or both")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries the same code without"
    )
    parser.add_argument("--json", type=Path, help="write everything there")
    parser.add_argument(
        "--one-graph",
        type=Path,
        help="folder from `python -m loadtest.bench.one_graph`",
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="for each figure; 0 for the checks alone"
    )
    parser.add_argument(
        "--attention-kernels",
        type=int,
        default=cuda.ATTENTION_KERNELS,
        help="which ones attention may use on CUDA, as ONNX Runtime's sdpa_kernel; 0 for its own "
        "choice",
    )
    parser.add_argument("--rows", type=int, default=400, help="texts in the check of company")
    return parser


if __name__ == "__main__":
    sys.exit(main())
