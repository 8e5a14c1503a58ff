"""The graphs for GPUs of every family: what they read, what they launch, and what they say."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch

from export.chain.gpu_segments import GpuSegment, gpu_segment, names
from export.chain.segments import build_segment
from export.chain.stages import spans
from export.kernels.attention_bias import ATTENTION_BIAS, KEY_PADDING_MASK
from models.multi_exit import ExitConfig, HeadConfig, MultiExitModel
from tests.export.support.gpu_graphs import GpuGraphs
from tests.support.families import CONFIGS, DISTINCT, VOCABULARY, tiny_encoder, with_depth

# Nodes that launch nothing: they give other sizes to the same bytes, or compute sizes.
FREE = {"Shape", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Identity"}
BERT_LAYER = ["Attention", "MatMul", "SkipLayerNormalization", "MatMul", "BiasGelu", "MatMul"]
BERT_LAYER += ["SkipLayerNormalization"]
ONE_LAYER = {"albert": [op.replace("BiasGelu", "FastGelu") for op in BERT_LAYER]}
# Launches of a first body, a later body, and a head. `docs/gpu.md` has the same figures.
LAUNCHES = {
    "albert": (16, 7, 5),
    "bert": (14, 7, 5),
    "deberta-v2": (74, 59, 5),
    "distilbert": (12, 7, 5),
    "electra": (17, 7, 5),
    "mobilebert": (65, 48, 5),
    "modernbert": (44, 57, 6),
    "mpnet": (15, 9, 5),
    "roberta": (16, 7, 5),
}
# What attention is told: lengths and starts, lengths alone, or nothing but a bias.
TOLD = {"mpnet": {"lengths"}, "mobilebert": set(), "deberta-v2": set()}
# The embeddings or the attention of these look at which tokens are real.
LOOKS_AT_TOKENS = {"deberta-v2", "mobilebert", "modernbert"}


@cache
def model_of(family: str, pooling: str = "mean") -> MultiExitModel:
    encoder = tiny_encoder(with_depth(CONFIGS[family], 2))
    exits = ExitConfig(exits=(1, 2), head=HeadConfig(pooling=pooling))
    return MultiExitModel(encoder, exits).eval()


@cache
def traced(family: str, pooling: str = "mean") -> list[ir.Model]:
    model = model_of(family, pooling)
    return [build_segment(model, span) for span in spans(model.exits)]


@cache
def segments_of(family: str, half: bool, pooling: str = "mean") -> list[GpuSegment]:
    return [gpu_segment(segment.clone(), half) for segment in traced(family, pooling)]


def launching(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph if node.op_type not in FREE]


def inputs(model: ir.Model) -> set[str]:
    return set(names(model.graph.inputs))


def test_every_family_is_seen() -> None:
    assert LAUNCHES.keys() == DISTINCT.keys()


@pytest.mark.parametrize("family", DISTINCT)
def test_no_graph_reads_a_mask_and_no_body_holds_a_head(family: str) -> None:
    first, later = segments_of(family, half=True)
    allowed = {"lengths", "attention_lengths", "shares"}
    assert inputs(first.body) <= {"input_ids", "token_type_ids"} | allowed
    assert inputs(later.body) <= {"hidden"} | allowed
    for body, head in (first, later):
        assert inputs(head) == {"hidden", "shares"}
        assert names(body.graph.outputs) == ("hidden_out",)
        assert names(head.graph.outputs) == ("logits",)
        assert not [name for name in body.graph.initializers if ".heads." in name]
        counted = {"ReduceSum", "LpNormalization", "CumSum"}
        assert not counted & set(launching(body) + launching(head))
        told = inputs(body) - {"input_ids", "token_type_ids", "hidden"}
        assert told - {"shares"} <= TOLD.get(family, {"attention_lengths"})
        assert ("shares" in told) <= (family in LOOKS_AT_TOKENS)


@pytest.mark.parametrize("family", LAUNCHES)
def test_a_segment_launches_so_many_nodes(family: str) -> None:
    first, later = segments_of(family, half=True)
    found = tuple(len(launching(m)) for m in (first.body, later.body, later.head))
    assert found == LAUNCHES[family]
    if found[1] == len(BERT_LAYER):
        assert launching(later.body) == ONE_LAYER.get(family, BERT_LAYER)


def attentions(model: ir.Model) -> Iterator[ir.Node]:
    yield from (n for n in model.graph if n.op_type in ("Attention", "MultiHeadAttention"))


def test_attention_of_rotary_positions_is_told_lengths_where_it_looks_everywhere() -> None:
    everywhere, nearby = (
        next(attentions(segment.body)) for segment in segments_of("modernbert", half=True)
    )
    assert everywhere.inputs[KEY_PADDING_MASK].name == "attention_lengths"
    assert not any(everywhere.inputs[ATTENTION_BIAS:])
    assert nearby.inputs[KEY_PADDING_MASK] is None
    assert nearby.inputs[ATTENTION_BIAS] is not None, "a window hides more than padding"


def test_heads_of_other_widths_than_the_kernel_takes_keep_the_plain_form() -> None:
    config = with_depth(CONFIGS["bert"], 1)
    config.num_attention_heads = 8  # of width 4
    model = MultiExitModel(tiny_encoder(config), ExitConfig(exits=(1,))).eval()
    (span,) = spans(model.exits)
    (attention,) = attentions(gpu_segment(build_segment(model, span)).body)
    assert attention.inputs[3].name == "lengths"


def test_attention_between_different_states_keeps_its_products_apart() -> None:
    segment = traced("bert")[0].clone()
    attention = next(attentions(segment))
    attention.replace_input_with(1, attention.inputs[1].producer().inputs[0])
    (found,) = attentions(gpu_segment(segment).body)
    assert found.op_type == "MultiHeadAttention"
    assert found.inputs[KEY_PADDING_MASK].name == "attention_lengths"


def test_graphs_have_the_shapes_they_declare_and_the_long_form_is_one_of_them() -> None:
    for body, head in segments_of("bert", half=True):
        for model in (body, head):
            proto = ir.to_proto(model)
            ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        lengths = {v.name: v for v in body.graph.inputs}["attention_lengths"]
        assert lengths.dtype == ir.DataType.INT32
        assert not isinstance(lengths.shape[0], int), "(rows,) on a CPU, (3 x rows + 2,) on CUDA"
    (schema,) = (
        s
        for s in ort.capi.onnxruntime_pybind11_state.get_all_operator_schema()
        if (s.domain, s.name) == ("com.microsoft", "Attention")
    )
    said = next(i.description for i in schema.inputs if i.name == "mask_index")
    assert "(3 * batch_size + 2)" in said


# In fp16 every family is compared with its model by `tests/export/test_families.py`.
@pytest.mark.parametrize(
    ("family", "pooling", "half"),
    [*((family, "mean", False) for family in DISTINCT), ("bert", "first", True)],
)
def test_every_exit_is_the_models_alone_and_in_company(
    family: str, pooling: str, half: bool
) -> None:
    model, graphs = model_of(family, pooling), GpuGraphs(segments_of(family, half, pooling))
    lengths = np.array([33, 9, 1, 20])
    ids = np.random.default_rng(0).integers(4, VOCABULARY, (4, 33))
    mask = (np.arange(33) < lengths[:, None]).astype(np.int64)
    with torch.no_grad():
        expected = [x.numpy() for x in model(torch.from_numpy(ids), torch.from_numpy(mask))]
    together = graphs.run(ids, mask)
    for run, right in zip(together, expected, strict=True):
        np.testing.assert_allclose(run.said[0], right, atol=6e-3 if half else 3e-6)
    for row, length in enumerate(lengths):
        one = np.s_[row : row + 1, :length]
        for run, alone in zip(together, graphs.run(ids[one], mask[one]), strict=True):
            np.testing.assert_allclose(
                run.said[0][row], alone.said[0][0], atol=4e-3 if half else 2e-6
            )
