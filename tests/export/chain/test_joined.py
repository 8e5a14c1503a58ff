"""The joined graph: what it declares, and which nodes it runs."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from export.chain.joined import join_segments
from export.files import save_joined
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from tests.export.support.graphs import open_graph
from tests.support.tiny import DEPTH

PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")
MASK = np.ones((2, 5), np.int64)
IDS = {"input_ids": 7 * MASK, "attention_mask": MASK, "token_type_ids": 0 * MASK}


def nodes_of(graph: ir.Graph) -> Iterator[ir.Node]:
    """Yield the nodes of a graph and of all graphs inside it."""
    for node in graph:
        yield node
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from nodes_of(attribute.as_graph())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_it_declares_the_segments_inputs_and_a_run(bundle: Bundle, precision: Precision) -> None:
    path = bundle.joined_path(precision)
    onnx.checker.check_model(path, full_check=True)
    graph = onnx.load(path, load_external_data=False).graph
    inputs = [value.name for value in graph.input]
    assert inputs == [*IDS, "hidden", "keep", "first", "until"]
    defaults = {tensor.name for tensor in graph.initializer} & set(inputs)
    assert set(inputs) - defaults == {"attention_mask", "until"}
    outputs = [value.name for value in graph.output]
    assert outputs == ["logits", *(f"hidden_after_{i}" for i in range(DEPTH - 1))]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_it_holds_the_layers_apart_and_in_a_row_over_the_same_weights(
    bundle: Bundle, precision: Precision
) -> None:
    segments = [ir.load(path) for path in bundle.segment_paths(precision)]
    apart = Counter(node.op_type for segment in segments for node in segment.graph)
    joined = bundle.joined_path(precision)
    together = Counter(node.op_type for node in nodes_of(ir.load(joined).graph))
    assert together["Attention"] == 2 * apart["Attention"]
    assert together["MultiHeadAttention"] == 2 * apart["MultiHeadAttention"]
    heads = DEPTH + 1
    assert together["LpNormalization"] == heads, "the last one twice"
    assert joined.stat().st_size < 2.5 * sum(p.stat().st_size for p in joined.parent.glob("0*"))


def test_joining_leaves_the_segments_as_they_are(bundle: Bundle) -> None:
    segments = [ir.load(path) for path in bundle.segment_paths("fp32")]
    before = [ir.to_proto(segment).SerializeToString() for segment in segments]
    join_segments(segments)
    assert [ir.to_proto(segment).SerializeToString() for segment in segments] == before


def break_head(segment: ir.Model) -> None:
    """Let the head look up labels that there are not."""
    graph, logits = segment.graph, segment.graph.outputs[1]
    index = ir.Value(name="index", const_value=ir.tensor(np.array([7, 7, 7])))
    graph.register_initializer(index)
    output = ir.Value(name="logits", type=logits.type, shape=logits.shape)
    logits.name = "before"
    graph.append(ir.node("Gather", [logits, index], {"axis": 1}, outputs=[output]))
    graph.outputs[1] = output


@pytest.fixture
def broken_heads(bundle: Bundle, tmp_path: Path) -> ort.InferenceSession:
    """Return a joined graph in which the heads of the first and the third segment fail."""
    paths = []
    shutil.copy(bundle.weights_path("fp32"), tmp_path)
    for index, path in enumerate(bundle.segment_paths("fp32")):
        segment = ir.load(path)
        if index in (0, 2):
            break_head(segment)
        paths.append(tmp_path / path.name)
        ir.save(segment, paths[-1])
    save_joined(paths, tmp_path / "joined.onnx")
    return open_graph(tmp_path / "joined.onnx")


def test_heads_before_the_end_of_a_run_do_not_run(
    broken_heads: ort.InferenceSession, bundle: Bundle
) -> None:
    whole = open_graph(bundle.joined_path("fp32"))
    for until in (1, 3):
        feeds = IDS | {"until": np.array(until)}
        (found,), (expected,) = (s.run(["logits"], feeds) for s in (broken_heads, whole))
        np.testing.assert_array_equal(found, expected)
    for until in (0, 2):
        with pytest.raises(Exception, match="Gather"):
            broken_heads.run(["logits"], IDS | {"until": np.array(until)})


def test_segments_outside_a_run_give_nothing(bundle: Bundle) -> None:
    session = open_graph(bundle.joined_path("fp32"))
    hidden = np.random.default_rng(0).standard_normal((4, 9, 32)).astype(np.float32)
    feeds = {"hidden": hidden, "keep": np.array([3, 1]), "attention_mask": MASK}
    feeds |= {"first": np.array(2), "until": np.array(2)}
    names = [f"hidden_after_{i}" for i in range(DEPTH - 1)]
    before, chosen, after = session.run(names, feeds)
    assert before.size == 0
    np.testing.assert_array_equal(chosen, hidden[[3, 1], :5])
    assert after.shape == chosen.shape
    assert not np.array_equal(after, chosen)
