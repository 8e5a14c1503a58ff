"""The report as lines of text; nothing but the standard library formats it."""

from collections.abc import Sequence
from typing import Any

from loadtest.bench.gpu.checks import Finding
from loadtest.bench.gpu.throughput import Throughput
from loadtest.bench.gpu.timing import BatchSize, Timing


def print_facts(document: dict[str, Any]) -> None:
    """Print what it runs on."""
    told = document["gpu"]
    where = ", ".join(told.values()) if told else document["device"]
    print(f"{document['bundle']} on {where}")
    print(
        f"onnxruntime {document['onnxruntime']} (CUDA {document['cuda_of_build']}), "
        f"offramp {document['offramp']}, Python {document['python']}, {document['machine']}"
    )


def print_operators(assigned: dict[str, dict[str, int]]) -> None:
    """Print which provider runs what."""
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
    """Print what shapes take."""
    header = [
        "rows x tokens",
        "one graph",
        "no exit asked",
        "every exit",
        "ratio",
        "until each exit",
    ]
    _table(header, [_timing(t) for t in times])


def print_sizes(sizes: Sequence[BatchSize]) -> None:
    """Print what larger batches bring."""
    batch = [f"{s.rows} x {s.tokens}" for s in sizes]
    columns = ([f"{s.ms:.3f}" for s in sizes], [f"{s.rows_per_s:.0f}" for s in sizes])
    _table(["batch", "ms", "rows/s"], [list(line) for line in zip(batch, *columns, strict=True)])


def print_throughput(rates: Sequence[Throughput]) -> None:
    """Print what the engine answers."""
    _table(
        ["rows leave", "lone, ms", "rows/s"],
        [[r.way, f"{r.lone_ms:.3f}", f"{r.rows_per_s:.0f}"] for r in rates],
    )


def _timing(t: Timing) -> list[str]:
    full = t.until_exit_ms[-1]
    return [
        f"{t.rows} x {t.tokens}",
        "-" if t.one_graph_ms is None else f"{t.one_graph_ms:.3f}",
        f"{t.unasked_ms:.3f}",
        f"{full:.3f}",
        "-" if t.one_graph_ms is None else f"{full / t.one_graph_ms:.2f}",
        " ".join(f"{ms / full:.2f}" for ms in t.until_exit_ms),
    ]


def _table(header: list[str], lines: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
    print()
    for line in (header, *lines):
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )
