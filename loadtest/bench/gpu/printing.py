"""Print the report."""

from collections.abc import Sequence
from typing import Any

from loadtest.bench.gpu.checks import Finding
from loadtest.bench.gpu.throughput import Throughput
from loadtest.bench.gpu.timing import BatchSize, Timing
from models.report.markdown import table


def print_facts(document: dict[str, Any]) -> None:
    """Print the device, the versions and the host."""
    gpu = document["gpu"]
    where = ", ".join(gpu.values()) if gpu else document["device"]
    print(f"{document['bundle']} on {where}")
    print(
        f"onnxruntime {document['onnxruntime']} (CUDA {document['cuda_of_build']}), offramp "
        f"{document['offramp']}, Python {document['python']}, {document['cores']} cores of "
        f"{document['cpu']}"
    )


def print_operators(assigned: dict[str, dict[str, int]]) -> None:
    """Print each provider's operators."""
    for provider, kinds in assigned.items():
        listed = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        print(f"{provider}: {listed}")


def print_finding(found: Finding) -> None:
    """Print a line about one check."""
    print(
        f"{'ok    ' if found.passed else 'FAILED'} {found.check}: largest logit error "
        f"{found.max_error:.2g} (at most {found.tolerance:g}; {found.worst}), "
        f"{found.agreement:.2%} of {found.answers} agree"
    )


def print_times(times: Sequence[Timing]) -> None:
    """Print the time of each shape."""
    head = ("rows x tokens", "one graph", "last exit", "every exit", "ratio", "until each exit")
    print(f"\n{table(head, [_timing(t) for t in times])}")


def print_sizes(sizes: Sequence[BatchSize]) -> None:
    """Print the time of each batch size."""
    lines = [[f"{s.rows} x {s.tokens}", f"{s.ms:.3f}", f"{s.rows_per_s:.0f}"] for s in sizes]
    print(f"\n{table(('batch', 'ms', 'rows/s'), lines)}")


def print_throughput(rates: Sequence[Throughput]) -> None:
    """Print the engine's throughput."""
    lines = [[r.way, f"{r.lone_ms:.3f}", f"{r.rows_per_s:.0f}"] for r in rates]
    print(f"\n{table(('rows leave', 'lone, ms', 'rows/s'), lines)}")


def _timing(t: Timing) -> list[str]:
    full = t.until_exit_ms[-1]
    return [
        f"{t.rows} x {t.tokens}",
        "-" if t.one_graph_ms is None else f"{t.one_graph_ms:.3f}",
        f"{t.last_exit_ms:.3f}",
        f"{full:.3f}",
        "-" if t.one_graph_ms is None else f"{full / t.one_graph_ms:.2f}",
        " ".join(f"{ms / full:.2f}" for ms in t.until_exit_ms),
    ]
