import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import typer
from typer.testing import CliRunner

from export.chain.segments import build_segment, variant
from export.chain.stages import Span
from loadtest.bench.inputs import Shape, feeds_of
from loadtest.bench.one_graph import join, write_one_graph
from loadtest.bench.one_graph_session import OneGraph
from loadtest.bench.segments.cli import bench
from loadtest.bench.segments.comparison import compare
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.ort_session import session_options
from tests.support.tiny import DEPTH, tiny_model


@pytest.fixture(scope="module")
def direct() -> ir.Model:
    """Return the model traced in one go, with the last head alone."""
    return build_segment(tiny_model(), Span(start=0, stop=DEPTH, head=DEPTH - 1))


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(f"{node.domain}:{node.op_type}" for node in model.graph.node)


def matrices(model: onnx.ModelProto) -> Counter[tuple[int, ...]]:
    return Counter(tuple(t.dims) for t in model.graph.initializer if len(t.dims) > 1)


def joined(bundle: Bundle, precision: Precision) -> onnx.ModelProto:
    return join([onnx.load(path) for path in bundle.segment_paths(precision)])


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_one_graph_is_what_a_direct_export_gives(
    bundle: Bundle, direct: ir.Model, precision: Precision
) -> None:
    expected = ir.to_proto(variant(direct, precision))
    found = joined(bundle, precision)
    assert operators(found) == operators(expected)
    assert matrices(found) == matrices(expected)


def test_the_one_graph_takes_ids_and_gives_logits_alone(bundle: Bundle) -> None:
    graph = joined(bundle, "fp32").graph
    names = ["input_ids", "attention_mask", "token_type_ids"]
    assert [value.name for value in graph.input] == names
    assert len(graph.output) == 1
    onnx.checker.check_graph(graph, _context())


def _context() -> onnx.checker.C.CheckerContext:
    context = onnx.checker.C.CheckerContext()
    context.ir_version = 10
    context.opset_imports = {"": 18, "com.microsoft": 1}
    return context


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_one_graph_answers_like_the_last_segment(
    bundle: Bundle, tmp_path: Path, precision: Precision
) -> None:
    feeds = feeds_of(Shape(3, 9), vocabulary=200)
    one_graph = OneGraph(write_one_graph(bundle, precision, tmp_path), session_options(2))
    chain = CpuRunner(bundle, precision, 2)
    mask = feeds["attention_mask"]
    step = chain.start(feeds["input_ids"], mask, feeds["token_type_ids"])
    for index in range(1, DEPTH):
        step = chain.advance(index, step.hidden, np.arange(3), mask)
    np.testing.assert_array_equal(one_graph.run(feeds), step.logits)


def test_every_shape_that_fits_is_measured(bundle: Bundle) -> None:
    shapes = (Shape(1, 4), Shape(2, 64), Shape(1, 128))
    document = compare(bundle, "fp32", num_threads=1, seconds=0, shapes=shapes)
    assert [(s["rows"], s["tokens"]) for s in document["shapes"]] == [(1, 4), (2, 64)]
    assert document["exit_layers"] == [1, 2, 3, 4]
    assert all(shape["fp32_segments_ms"] is None for shape in document["shapes"])
    for shape in document["shapes"]:
        assert min(shape["segments_ms"], shape["one_graph_ms"], shape["ratio"]) > 0
        *shares, whole = shape["exit_shares"]
        assert len(shares) == 3
        assert min(shares) > 0
        assert whole == 1


def test_the_command_prints_a_table_and_writes_json(bundle: Bundle, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(bench)
    figures = tmp_path / "bench.json"
    arguments = [str(bundle.folder), "--precision", "int8", "--seconds", "0"]
    result = CliRunner().invoke(app, [*arguments, "--json", str(figures)], catch_exceptions=False)
    assert "tiny, int8" in result.stdout
    assert "exit 3 (0.75)" in result.stdout
    document = json.loads(figures.read_text())
    assert (document["bundle"], document["precision"]) == ("tiny", "int8")
    assert all(shape["fp32_segments_ms"] > 0 for shape in document["shapes"])
    assert "faster than fp32" in result.stdout
    assert len(document["shapes"]) == 4, "all but 1 x 128"
