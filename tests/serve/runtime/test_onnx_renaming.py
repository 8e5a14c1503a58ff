"""Values of ONNX graphs under other names."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

from serve.runtime.onnx_renaming import made_in, renamed

MODEL = """
    <ir_version: 10, opset_import: ["" : 18]>
    model (float[rows] begin, bool which) => (float[rows] end)
    <float[1] own = {2.0}>
    { sum = Add(begin, own)
      end = If (which) <
        then_branch = more () => (float[rows] one) { inner = Mul(sum, own)  one = Neg(inner) },
        else_branch = less () => (float[rows] other) <float[1] mine = {3.0}>
          { other = Add(sum, mine) }
      > }
"""


@pytest.fixture
def model() -> onnx.ModelProto:
    model = parser.parse_model(MODEL)
    for node in model.graph.node:
        node.name = "of its own"
    return model


def requeue(model: onnx.ModelProto, names: dict[str, str]) -> onnx.ModelProto:
    pieces = renamed(memoryview(model.graph.SerializeToString()), names)
    model.graph.ParseFromString(b"".join(pieces))
    return model


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[float]:
    onnx.checker.check_model(model, full_check=True)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (said,) = session.run(None, feeds)
    numbers: list[float] = said.tolist()
    return numbers


def test_what_a_graph_makes_and_holds_has_its_names(model: onnx.ModelProto) -> None:
    assert made_in(memoryview(model.graph.SerializeToString())) == {"own", "sum", "end"}


@pytest.mark.parametrize(("which", "said"), [(True, [-6, -8]), (False, [6, 7])])
def test_graphs_inside_read_values_under_their_new_names(
    model: onnx.ModelProto, which: bool, said: list[float]
) -> None:
    names = {name: f"{name} elsewhere" for name in ("own", "sum", "end", "begin")}
    other = requeue(model, names)
    assert [value.name for value in other.graph.output] == ["end elsewhere"]
    assert [value.name for value in other.graph.initializer] == ["own elsewhere"]
    feeds = {"begin elsewhere": np.array([1, 2], np.float32), "which": np.array(which)}
    assert run(other, feeds) == said


def test_values_with_no_new_name_keep_theirs(model: onnx.ModelProto) -> None:
    other = requeue(model, {"sum": "total"})
    assert [node.output[0] for node in other.graph.node] == ["total", "end"]
    feeds = {"begin": np.array([1], np.float32), "which": np.array(False)}
    assert run(other, feeds) == [6]


def test_nodes_lose_their_names(model: onnx.ModelProto) -> None:
    assert [node.name for node in requeue(model, {}).graph.node] == ["", ""]
