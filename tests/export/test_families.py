"""Every family makes a bundle that is its model, of fused operators, free of batch mates."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from transformers import PreTrainedConfig

from export import bundle as bundles
from models.multi_exit import ExitConfig, MultiExitModel
from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import Precision
from tests.export.support.chains import Chain
from tests.export.support.graphs import graph_of, ops
from tests.support.families import (
    CONFIGS,
    DISTINCT,
    MAX_TOKENS,
    VOCABULARY,
    tiny_encoder,
    with_depth,
)
from tests.support.tiny import tiny_tokenizer
from tests.support.wordpiece import save_tokenizer

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
# How many of these there are in a segment of one layer, for the CPU.
FUSED = {
    "albert": {"Attention": 1, "FastGelu": 1, "LayerNormalization": 2, "Sum": 2},
    "bert": {"Attention": 1, "BiasGelu": 1, "LayerNormalization": 2, "Sum": 2},
    "deberta-v2": {"BiasGelu": 1, "Softmax": 1, "LayerNormalization": 2},
    "distilbert": {"Attention": 1, "BiasGelu": 1, "LayerNormalization": 2},
    "electra": {"Attention": 1, "BiasGelu": 1, "LayerNormalization": 2},
    "mobilebert": {"MultiHeadAttention": 1, "Relu": 2, "LayerNormalization": 0},
    "modernbert": {"MultiHeadAttention": 1, "Gelu": 1, "LayerNormalization": 3},
    "mpnet": {"Attention": 1, "BiasGelu": 1, "LayerNormalization": 2},
    "roberta": {"Attention": 1, "BiasGelu": 1, "LayerNormalization": 2},
}
# How many products with weights a later segment has: layer and pooler.
PRODUCTS = {"mobilebert": 12, "modernbert": 5}
# For GPUs: one Attention, unless queries, keys and values are no Linear layers of one input.
FOR_GPUS = {
    "deberta-v2": "Softmax",
    "mobilebert": "MultiHeadAttention",
    "modernbert": "MultiHeadAttention",
}

MakeBundle = Callable[[str], Bundle]


def exported(config: PreTrainedConfig, folder: Path) -> Bundle:
    """Export two layers, an exit after each, in every precision."""
    model = MultiExitModel(tiny_encoder(with_depth(config, 2)), ExitConfig(exits=(1, 2)))
    model.save(folder / "model")
    save_tokenizer(tiny_tokenizer(), folder / "model")
    bundles.write(bundles.plan(folder / "model", PRECISIONS), folder / "bundle")
    return load_bundle(folder / "bundle")


@pytest.fixture(scope="module")
def make_bundle(tmp_path_factory: pytest.TempPathFactory) -> MakeBundle:
    """Return what exports a family, and again what it has exported."""
    return cache(lambda family: exported(CONFIGS[family], tmp_path_factory.mktemp(family)))


def test_every_family_has_a_row() -> None:
    assert FUSED.keys() == DISTINCT.keys()


@pytest.mark.parametrize("family", FUSED)
def test_the_bundle_is_the_model(family: str, make_bundle: MakeBundle) -> None:
    manifest = make_bundle(family).manifest
    found = {precision: manifest.variants[precision].parity for precision in PRECISIONS}
    # Odd shapes of one and three rows, up to 64 tokens, went through the same comparison.
    assert found["fp32"].max_logit_error < 2e-5 < found["int8"].max_logit_error < 0.2
    assert 1e-5 < found["fp16"].max_logit_error < 2e-2
    assert manifest.max_tokens == MAX_TOKENS
    assert manifest.pad_id == CONFIGS[family].pad_token_id


@pytest.mark.parametrize("family", FUSED)
def test_layers_run_fused_operators(family: str, make_bundle: MakeBundle) -> None:
    found = ops(make_bundle(family), "fp32", 1)
    assert {name: found[name] for name in FUSED[family]} == FUSED[family]
    assert not {"Erf", "Pow", "SkipLayerNormalization"} & found.keys()
    for_gpus = ops(make_bundle(family), "fp16", 1)
    assert for_gpus[FOR_GPUS.get(family, "Attention")] == 1
    assert not ({"Einsum", "ReduceSum", "LpNormalization"} & for_gpus.keys())


@pytest.mark.parametrize("family", FUSED)
def test_int8_multiplies_bytes_wherever_weights_are_multiplied(
    family: str, make_bundle: MakeBundle
) -> None:
    for index in range(2):
        graph = graph_of(make_bundle(family), "int8", index)
        large = {t.name for t in graph.initializer if np.prod(t.dims) >= 16 * 16}
        full = [n for n in graph.node if n.op_type in ("MatMul", "Gemm", "Conv")]
        assert not [node.name for node in full if large & set(node.input)]
    found = ops(make_bundle(family), "int8", 1)
    assert found["MatMulIntegerToFloat"] == PRODUCTS.get(family, 7)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("family", FUSED)
def test_a_row_gets_the_same_bits_in_any_company(
    family: str, precision: Precision, make_bundle: MakeBundle
) -> None:
    chain = Chain(make_bundle(family).segment_paths(precision))
    generator = np.random.default_rng(0)
    for length in (2, 3, 5, 9, 17, 33, 40):
        mates, width = generator.integers(0, 9), length + generator.integers(0, 24)
        ids = generator.integers(0, VOCABULARY, (mates + 1, width))
        lengths = generator.integers(1, width + 1, mates + 1)
        place = generator.integers(mates + 1)
        lengths[place] = length
        mask = (np.arange(width) < lengths[:, None]).astype(np.int64)
        alone = chain.run(ids[[place], :length], mask[[place], :length])
        together = chain.run(ids, mask)
        for one, many in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one.hidden[0], many.hidden[place, :length])
            np.testing.assert_array_equal(one.logits[0], many.logits[place])


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("family", FUSED)
def test_a_row_of_nothing_but_padding_stays_finite(
    family: str, precision: Precision, make_bundle: MakeBundle
) -> None:
    chain = Chain(make_bundle(family).segment_paths(precision))
    mask = np.array([[0] * 12, [1] * 12])
    depths = chain.run(np.full((2, 12), 5), mask)
    assert all(np.isfinite(depth.logits).all() for depth in depths)


def test_only_local_attention_of_modernbert_is_told_more_than_padding(
    make_bundle: MakeBundle,
) -> None:
    inputs = [
        next(
            n
            for n in graph_of(make_bundle("modernbert"), "fp32", index).node
            if n.op_type == "MultiHeadAttention"
        ).input
        for index in range(2)
    ]
    everywhere, nearby = ([bool(name) for name in names] for names in inputs)
    assert everywhere == [True, True, True, False, True], "key_padding_mask"
    assert nearby == [True, True, True, False, False, True], "attention_bias"


def test_positions_of_deberta_are_projected_at_export(make_bundle: MakeBundle) -> None:
    graph = graph_of(make_bundle("deberta-v2"), "fp32", 1)
    assert not [t.name for t in graph.initializer if "rel_embeddings" in t.name]


def test_the_convolution_of_deberta_is_a_product(make_bundle: MakeBundle) -> None:
    bundle = make_bundle("deberta-v2")
    assert not ops(bundle, "fp32", 0)["Conv"]
    assert ops(bundle, "int8", 0)["MatMulIntegerToFloat"] == 8
    assert ops(bundle, "fp16", 0)["Conv"] == 1


def test_norms_with_biases_change_no_answer_of_modernbert(tmp_path: Path) -> None:
    config = type(CONFIGS["modernbert"])(**CONFIGS["modernbert"].to_dict() | {"norm_bias": True})
    written = exported(config, tmp_path).manifest.variants
    assert written["fp32"].parity.max_logit_error < 1e-4
    assert all(each.parity.label_agreement > 0.8 for each in written.values())
