from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from export.chain.weights import MIN_BYTES, WeightsFile
from export.files import hashes, save_segment
from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import Precision
from tests.export.support.graphs import open_graph
from tests.support.tiny import write_tiny_bundle


def graph_of(**arrays: np.ndarray) -> ir.Model:
    values = [
        ir.Value(name=name, const_value=ir.tensor(array, name=name))
        for name, array in arrays.items()
    ]
    graph = ir.Graph([], [], nodes=[], initializers=values, opset_imports={"": 18})
    return ir.Model(graph, ir_version=10)


def test_equal_weights_lie_in_the_file_once(tmp_path: Path) -> None:
    many, others = np.arange(500, dtype=np.float32), np.arange(500, dtype=np.float32) + 1
    file = WeightsFile(tmp_path / "weights.bin")
    one, two = graph_of(a=many, b=others), graph_of(c=many.reshape(5, 100), d=many.copy())
    file.take_in(one)
    file.take_in(two)
    # Each begins at a multiple of 64 bytes.
    assert (tmp_path / "weights.bin").stat().st_size == 2048 + others.nbytes
    for model, arrays in ((one, [many, others]), (two, [many.reshape(5, 100), many])):
        ir.save(model, tmp_path / "graph.onnx")
        loaded = ir.load(tmp_path / "graph.onnx").graph.initializers.values()
        for value, array in zip(loaded, arrays, strict=True):
            np.testing.assert_array_equal(value.const_value.numpy(), array)


def test_small_tensors_stay_in_their_graph(tmp_path: Path) -> None:
    model = graph_of(small=np.zeros(MIN_BYTES - 1, np.int8), large=np.zeros(MIN_BYTES, np.int8))
    WeightsFile(tmp_path / "weights.bin").take_in(model)
    small, large = (value.const_value for value in model.graph.initializers.values())
    assert not isinstance(small, ir.ExternalTensor)
    assert isinstance(large, ir.ExternalTensor)


def test_a_segment_gives_the_same_from_any_place_of_a_file(bundle: Bundle, tmp_path: Path) -> None:
    path = bundle.segment_paths("fp32")[1]
    file = WeightsFile(tmp_path / "weights.bin")
    file.take_in(graph_of(before=np.zeros(3333, np.uint8)))
    save_segment(ir.load(path), tmp_path / "02.onnx", file)
    assert sorted(hashes(tmp_path)) == ["02.onnx", "weights.bin"]
    feeds = {
        "hidden": np.random.default_rng(0).standard_normal((2, 5, 32)).astype(np.float32),
        "keep": np.arange(2),
        "attention_mask": np.ones((2, 5), np.int64),
    }
    one, other = (open_graph(each).run(None, feeds) for each in (path, tmp_path / "02.onnx"))
    np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_all_segments_of_albert_refer_to_the_same_weights(
    shared_bundle: Bundle, precision: Precision
) -> None:
    referred = []
    for path in shared_bundle.segment_paths(precision)[1:]:
        tensors = onnx.load(path, load_external_data=False).graph.initializer
        places = ({e.key: e.value for e in tensor.external_data} for tensor in tensors)
        referred.append({(p["offset"], p["length"]) for p in places if p})
    layer = set.intersection(*referred)
    own = max(sum(int(length) for _, length in found - layer) for found in referred)
    assert sum(int(length) for _, length in layer) > own, "a head alone has weights of its own"


def test_a_subset_of_the_exits_of_albert(tmp_path: Path) -> None:
    folder = write_tiny_bundle(tmp_path, "some", ("fp32",), "albert", exits=(2, 4))
    bundle = load_bundle(folder)
    assert bundle.manifest.exit_layers == (2, 4)
    assert [path.name for path in bundle.segment_paths("fp32")] == ["02.onnx", "04.onnx"]
