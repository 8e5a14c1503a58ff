"""A bundle's segments against the same model as one graph, over several shapes."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort
from tokenizers import Tokenizer

from loadtest.bench.inputs import Shape
from loadtest.bench.one_graph import write_one_graph
from loadtest.bench.one_graph_session import OneGraph
from loadtest.bench.segments.segment_timing import Contenders, Finding, race
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.ort_session import plain_options, session_options
from serve.runtime.process_memory import settle_memory

SHAPES = (Shape(1, 8), Shape(1, 32), Shape(1, 128), Shape(8, 32), Shape(32, 32))

Document = dict[str, Any]


def compare(
    bundle: Bundle,
    precision: Precision,
    num_threads: int,
    seconds: float,
    shapes: Sequence[Shape] = SHAPES,
) -> Document:
    """Return all figures as JSON data.

    Args:
        bundle: to measure.
        precision: variant of both the segments and the one graph.
        num_threads: for either.
        seconds: time for each shape.
        shapes: those with more tokens than the model takes are left out.
    """
    vocabulary = Tokenizer.from_file(str(bundle.tokenizer_path)).get_vocab_size()
    chain = CpuRunner(bundle, precision, num_threads)
    beside_fp32 = precision != "fp32" and "fp32" in bundle.manifest.variants
    fp32 = CpuRunner(bundle, "fp32", num_threads) if beside_fp32 else None
    last_head, every_head = (
        one_graphs(bundle, precision, num_threads, every) for every in (False, True)
    )
    # One thread's own time is not disturbed by what else the machine does.
    clock = time.thread_time if num_threads == 1 else time.perf_counter
    contenders = Contenders(last_head, every_head, chain, fp32, clock)
    settle_memory()
    fitting = [shape for shape in shapes if shape.tokens <= bundle.manifest.max_tokens]
    findings = [race(contenders, shape, vocabulary, seconds) for shape in fitting]
    return {
        "bundle": bundle.name,
        "precision": precision,
        "threads": num_threads,
        "exit_layers": list(bundle.manifest.exit_layers),
        "shapes": [_entry(finding) for finding in findings],
    }


def one_graphs(
    bundle: Bundle, precision: Precision, num_threads: int, every_head: bool
) -> list[OneGraph]:
    """Return the model as one graph, in the settings that may suit it best.

    Args:
        bundle: whose segments are joined.
        precision: which variant.
        num_threads: of every session.
        every_head: keep the inner heads.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = write_one_graph(bundle, precision, Path(folder), every_head)
        return [OneGraph(path, options) for options in fair_options(num_threads)]


def fair_options(num_threads: int) -> list[ort.SessionOptions]:
    """Return the settings that may suit the one graph best, its default ones among them.

    With the default ones a session's threads spin on after a run.
    """
    ours = session_options(num_threads)
    if num_threads == 1:
        return [ours]
    return [ours, plain_options(num_threads)]


def _entry(finding: Finding) -> Document:
    return {
        "rows": finding.shape.rows,
        "tokens": finding.shape.tokens,
        "one_graph_ms": finding.one_graph_ms,
        "segments_ms": finding.segments_ms,
        "asked_ms": finding.asked_ms,
        "by_host_ms": finding.by_host_ms,
        "fp32_segments_ms": finding.fp32_ms,
        "every_head_ms": finding.every_head_ms,
        "ratio": finding.ratio,
        "price_of_cutting": finding.price_of_cutting,
        "exit_shares": list(finding.exit_shares),
    }
