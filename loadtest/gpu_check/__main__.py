"""`python -m loadtest.gpu_check BUNDLE`: parity, invariance, times and throughput on a GPU."""

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from loadtest.gpu_check.checks import Finding, check_invariance, check_parity
from loadtest.gpu_check.facts import facts, operators, strays
from loadtest.gpu_check.pages import print_facts, print_findings, print_operators, print_times
from loadtest.gpu_check.subject import Subject, load, opener, reference, variants
from loadtest.gpu_check.throughput import measure_throughput
from loadtest.gpu_check.timing import OneGraph, time_shapes, time_wave_sizes
from serve import cuda
from serve.bundle import Bundle, load_bundle
from serve.errors import OfframpError


class Report(NamedTuple):
    """The JSON document, and what was found wrong."""

    document: dict[str, Any]
    problems: list[str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything, print it, and return 0 if nothing was wrong."""
    wanted = _parser().parse_args(arguments)
    try:
        report = examine(load_bundle(wanted.bundle), wanted)
    except OfframpError as error:
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

    What fails in one of them is a problem of that one. The document is written after each, with
    what was found until then.
    """
    if wanted.device == "cuda":
        cuda.require()
    document: dict[str, Any] = {**facts(bundle, wanted.device), "variants": {}, "problems": []}
    print_facts(document)
    problems: list[str] = document["problems"]
    for precision in variants(bundle):
        print(f"\n== {precision}")
        found = document["variants"].setdefault(precision, {})
        try:
            wrong = _examine_variant(load(bundle, precision, wanted.device), wanted, found)
        except Exception as error:  # ONNX Runtime's errors have no common type
            traceback.print_exc()
            reason, *_ = str(error).split("\n")
            wrong = [f"{type(error).__name__}: {reason}"]
        problems += [f"{precision}: {problem}" for problem in wrong]
        _write(document, wanted.json)
    if not document["variants"]:
        problems.append("the bundle has no variant for GPUs: export it with --precision fp32,fp16")
        _write(document, wanted.json)
    return Report(document, problems)


def _write(document: dict[str, Any], path: Path | None) -> None:
    if path:
        path.write_text(json.dumps(document, indent=2) + "\n")


def _examine_variant(
    subject: Subject, wanted: argparse.Namespace, found: dict[str, Any]
) -> list[str]:
    """Return what is wrong with a variant, and leave in `found` what was found."""
    assigned = found["operators"] = operators(subject.bundle, subject.precision, wanted.device)
    print_operators(assigned)
    findings = [
        check_parity(subject, reference(subject.bundle)),
        check_invariance(subject, wanted.rows),
    ]
    print_findings(findings)
    found["findings"] = [finding._asdict() for finding in findings]
    if wanted.seconds:
        found |= _measure(subject, wanted)
    wrong = strays(assigned) if wanted.device == "cuda" else []
    return [*(f"{kind} does not run on the GPU" for kind in wrong), *_wrong(findings)]


def _measure(subject: Subject, wanted: argparse.Namespace) -> dict[str, Any]:
    one_graph = None
    path = wanted.one_graph and wanted.one_graph / subject.precision / "one_graph.onnx"
    if path and path.is_file():
        one_graph = OneGraph(path, opener(wanted.device))
    times = time_shapes(subject, one_graph, wanted.seconds)
    sizes = time_wave_sizes(subject, wanted.seconds)
    rates = measure_throughput(subject, wanted.seconds)
    print_times(times, sizes, rates)
    return {
        "times": [time._asdict() for time in times],
        "wave_sizes": [size._asdict() for size in sizes],
        "throughput": [rate._asdict() for rate in rates],
    }


def _wrong(findings: Sequence[Finding]) -> list[str]:
    return [
        f"{f.check}: a logit differs by {f.max_error:.3g} (at most {f.tolerance:g}), "
        f"{f.agreement:.2%} of {f.answers} answers agree"
        for f in findings
        if not f.passed
    ]


def _name(document: dict[str, Any]) -> str:
    told = document["gpu"]
    return told["name"] if told else document["device"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadtest.gpu_check", description=__doc__)
    parser.add_argument("bundle", type=Path, help="a bundle with fp32, fp16 or both")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries the same code without"
    )
    parser.add_argument("--json", type=Path, help="write everything there")
    parser.add_argument(
        "--one-graph", type=Path, help="folder from `python -m loadtest.one_graph BUNDLE --out ...`"
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="for each figure; 0 for the checks alone"
    )
    parser.add_argument("--rows", type=int, default=400, help="texts in the check of company")
    return parser


if __name__ == "__main__":
    sys.exit(main())
