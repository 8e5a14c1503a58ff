"""ALBERT, whose layers are one layer, as a chain of segments."""

from collections import Counter
from pathlib import Path

import onnx
import pytest

from export.chain.stages import spans
from export.checks.parity import check, compare
from export.checks.samples import odd_batches
from export.errors import ExportFailed
from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import Precision
from serve.runtime.cpu_runner import CpuRunner
from tests.support.tiny import MAX_TOKENS, tiny_model, write_tiny_bundle

BOTH: tuple[Precision, ...] = ("fp32", "int8")


def ops(bundle: Bundle, precision: Precision, index: int) -> Counter[str]:
    graph = onnx.load(bundle.segment_paths(precision)[index], load_external_data=False).graph
    return Counter(node.op_type for node in graph.node)


def test_each_layer_runs_fused_operators(shared_bundle: Bundle) -> None:
    found = ops(shared_bundle, "fp32", 1)
    assert found["Attention"] == found["FastGelu"] == found["LpNormalization"] == 1
    assert found["LayerNormalization"] == found["Sum"] == 2
    left = {"Softmax", "Pow", "Transpose", "Expand", "SkipLayerNormalization", "Where"}
    assert not left & found.keys()


def test_int8_multiplies_bytes_everywhere_but_in_the_classifier(shared_bundle: Bundle) -> None:
    first, later = ops(shared_bundle, "int8", 0), ops(shared_bundle, "int8", 1)
    assert later["MatMulIntegerToFloat"] == 6 + 1, "a layer, and the pooler"
    assert first["MatMulIntegerToFloat"] == 6 + 1 + 1, "and the embeddings' mapping"
    assert not first["MatMul"]
    assert not later["MatMul"]


@pytest.mark.parametrize("precision", BOTH)
def test_all_segments_refer_to_the_same_weights(
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


def test_parity_is_recorded(shared_bundle: Bundle) -> None:
    exact, coarse = (shared_bundle.manifest.variants[p].parity for p in BOTH)
    assert exact.max_logit_error < 1e-5 < coarse.max_logit_error < 1
    assert coarse.label_agreement > 0.8
    assert exact.rows == coarse.rows > 50


def test_another_head_is_found_out(shared_bundle: Bundle) -> None:
    runner, other = CpuRunner(shared_bundle, "fp32", 1), tiny_model(family="albert")
    other.heads[2].pooler.bias.data[0] += 0.01
    gaps = compare(runner, other, spans(other.exits), odd_batches(MAX_TOKENS, 200))
    with pytest.raises(ExportFailed, match=r"exit 3: the fp32 segments differ"):
        check(gaps, "fp32")


def test_a_subset_of_the_exits_and_fp16(tmp_path: Path) -> None:
    folder = write_tiny_bundle(tmp_path, "half", ("fp32", "fp16"), "albert", exits=(2, 4))
    bundle = load_bundle(folder)
    assert bundle.manifest.exit_layers == (2, 4)
    assert bundle.manifest.variants["fp16"].parity.label_agreement > 0.9
    assert [path.name for path in bundle.segment_paths("fp32")] == ["02.onnx", "04.onnx"]
