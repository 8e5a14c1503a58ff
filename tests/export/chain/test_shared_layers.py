"""The graphs of shared layers: which there are, of what, and whether they are ALBERT."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from serve.runtime.shared_layers import SharedLayers

from export import bundle as bundles
from export.chain import shared_layers
from export.chain.stages import spans
from export.checks.contract import PASSED_ON, check_contract
from export.checks.parity import check, compare
from export.checks.samples import odd_batches
from export.errors import ExportFailed
from models.multi_exit import MultiExitModel
from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import Precision
from serve.engine.runner import Hidden, Ids, Step
from tests.support.tiny import MAX_TOKENS, tiny_model, tiny_tokenizer, write_tiny_bundle

BOTH: tuple[Precision, ...] = ("fp32", "int8")


@pytest.fixture(scope="module")
def albert() -> MultiExitModel:
    return tiny_model(family="albert")


def ops(bundle: Bundle, precision: Precision, stem: str) -> Counter[str]:
    graph = onnx.load(bundle.folder / f"segments/{precision}/{stem}.onnx").graph
    return Counter(node.op_type for node in graph.node)


@pytest.mark.parametrize("precision", BOTH)
def test_one_graph_per_kind_and_one_head_per_exit(
    shared_bundle: Bundle, precision: Precision
) -> None:
    folder = shared_bundle.folder / "segments" / precision
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.onnx")}
    assert files == {"embed.onnx", "layer.onnx", *(f"heads/{i:02d}.onnx" for i in range(1, 5))}
    manifest = shared_bundle.manifest
    assert (manifest.layers, manifest.num_layers) == ("shared", 4)
    for graph in manifest.variants[precision].graphs:
        declared = onnx.load(shared_bundle.folder / graph.file).graph
        assert [value.name for value in declared.input] == list(graph.inputs)
        assert [value.name for value in declared.output] == list(graph.outputs)


def test_the_layer_runs_fused_operators(shared_bundle: Bundle) -> None:
    found = ops(shared_bundle, "fp32", "layer")
    assert found["Attention"] == found["FastGelu"] == found["LpNormalization"] == 1
    assert found["LayerNormalization"] == found["Sum"] == 2
    left = {"Softmax", "Tanh", "Pow", "Transpose", "Expand", "SkipLayerNormalization", "Where"}
    assert not left & found.keys()
    assert found["Gather"] == found["Slice"] == 1, "it begins with choosing rows"


def test_int8_multiplies_bytes_everywhere_but_in_the_classifier(shared_bundle: Bundle) -> None:
    assert ops(shared_bundle, "int8", "layer")["MatMulIntegerToFloat"] == 6
    assert ops(shared_bundle, "int8", "embed")["MatMulIntegerToFloat"] == 1, "the mapping"
    assert ops(shared_bundle, "int8", "heads/02")["MatMulIntegerToFloat"] == 1, "the pooler"
    for stem in ("layer", "embed", "heads/02"):
        assert not ops(shared_bundle, "int8", stem)["MatMul"]


def test_parity_is_recorded(shared_bundle: Bundle) -> None:
    exact, coarse = (shared_bundle.manifest.variants[p].parity for p in BOTH)
    assert exact.max_logit_error < 1e-5 < coarse.max_logit_error < 1
    assert coarse.label_agreement > 0.8
    assert exact.rows == coarse.rows > 50


class Watched(SharedLayers):
    """Notes at how many depths the rows of each batch were."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle, "fp32", num_threads=1)
        self.depths_seen: list[int] = []

    def advance_mixed(
        self, depths: NDArray[np.int64], hidden: Hidden, keep: NDArray[np.int64], mask: Ids
    ) -> Step:
        self.depths_seen.append(len(set(depths.tolist())))
        return super().advance_mixed(depths, hidden, keep, mask)


def test_parity_compares_rows_at_different_depths_in_one_batch(
    shared_bundle: Bundle, albert: MultiExitModel
) -> None:
    layers = Watched(shared_bundle)
    gaps = compare(layers, albert, spans(albert.exits), odd_batches(MAX_TOKENS, 200))
    assert [gap.exit_layer for gap in gaps] == [1, 2, 3, 4]
    assert gaps[0].rows == 16, "every row reaches the first exit"
    assert all(gap.max_error < 1e-5 and gap.agreed == gap.rows > 0 for gap in gaps)
    assert max(layers.depths_seen) == 2


def test_another_head_is_found_out(shared_bundle: Bundle, albert: MultiExitModel) -> None:
    other = tiny_model(family="albert")
    other.heads[2].pooler.bias.data[0] += 0.01
    gaps = compare(Watched(shared_bundle), other, spans(other.exits), odd_batches(MAX_TOKENS, 200))
    with pytest.raises(ExportFailed, match=r"exit 3: the fp32 segments differ"):
        check(gaps, "fp32")


def test_a_subset_of_the_exits_has_only_their_heads(tmp_path: Path) -> None:
    folder = write_tiny_bundle(tmp_path, precisions=("fp32",), family="albert", exits=(2, 4))
    bundle = load_bundle(folder)
    assert bundle.manifest.exit_layers == (2, 4)
    assert [path.name for path in sorted(folder.glob("segments/*/heads/*"))] == [
        "02.onnx",
        "04.onnx",
    ]
    card = (folder / "README.md").read_text()
    assert "4 layers of width 32, which share one set of weights, exits after layers 2, 4" in card


def test_embeddings_of_a_model_without_token_types_take_none(albert: MultiExitModel) -> None:
    albert.backbone.has_token_types = False
    try:
        graph = shared_layers.build_embeddings(albert)
    finally:
        del albert.backbone.has_token_types
    assert [value.name for value in graph.graph.inputs] == ["input_ids"]


def test_a_graph_that_breaks_the_contract_is_named(albert: MultiExitModel) -> None:
    head = shared_layers.build_head(albert, spans(albert.exits)[1])
    with pytest.raises(ExportFailed, match=r"the head of exit 2 has \['pooled', 'logits'\]"):
        check_contract(head, (), {"width": 32, "labels": 3}, "the head of exit 2", (PASSED_ON,))


def test_fp16_is_refused_before_anything_is_traced(albert: MultiExitModel, tmp_path: Path) -> None:
    albert.save(tmp_path)
    tiny_tokenizer().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ExportFailed, match="share weights run on CPUs only: there is no fp16"):
        bundles.plan(tmp_path, ("fp32", "fp16"))
