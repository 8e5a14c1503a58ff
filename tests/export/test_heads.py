"""Every kind of head and task as a graph: names, shapes, numbers, and rows that do not mix."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray
from transformers import BertConfig

from export.chain.gpu_segments import gpu_segment
from export.chain.segments import build_segment, variant
from export.chain.stages import spans
from models.encoders.families import build_encoder
from models.heads import AttentionHeadConfig, HeadConfig
from models.multi_exit import ExitConfig, MultiExitModel
from serve.bundle.manifest import Precision
from tests.export.support.gpu_graphs import GpuGraphs
from tests.export.support.graphs import open_graph

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 32,
    "initializer_range": 0.2,
}
ATTENTION = AttentionHeadConfig(kind="attention", width=16)
MODERN = HeadConfig(pooling="first", activation="gelu", bias=False, norm=1e-5, norm_bias=False)
IDS = np.array([[2, 4, 10, 3, 7], [2, 7, 3, 0, 0], [2, 9, 11, 3, 0]])
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])

KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "multi-label": (5, {"task": "multi_label"}),
    "regression": (1, {"task": "regression"}),
    "token": (4, {"task": "token", "head": HeadConfig(pooling="tokens", pooler=False)}),
    "token-modern": (4, {"task": "token", "head": MODERN.model_copy(update={"pooling": "tokens"})}),
    "learned": (2, {"head": HeadConfig(pooling="first", uncertainty="pooler")}),
    "learned-first": (
        2,
        {"head": HeadConfig(pooling="first", activation="relu", uncertainty="pooling")},
    ),
    "modern": (3, {"head": MODERN}),
    "own-last": (3, {"last_head": MODERN}),
    "attention": (3, {"head": ATTENTION}),
    "attention-unbiased": (3, {"head": ATTENTION, "unbiased_norm": True}),
    "second-head": (3, {"exits": (1, 2), "second_head": True}),
}
# One traced graph says as much as two; only these have a later segment.
DEEPER = {"token": 2, "learned": 2, "own-last": 2}


class Run(NamedTuple):
    """One graph's outputs by name."""

    hidden: NDArray[np.float32]
    said: list[NDArray[np.float32]]


def make_model(kind: str) -> MultiExitModel:
    torch.manual_seed(0)
    (num_labels, options), depth = KINDS[kind], DEEPER.get(kind, 1)
    config = BertConfig(**SIZES, num_hidden_layers=depth, num_labels=num_labels)
    exits = ExitConfig(**({"exits": tuple(range(1, depth + 1))} | options))
    return MultiExitModel(build_encoder(config), exits).eval()


@cache
def traced(kind: str) -> list[ir.Model]:
    model = make_model(kind)
    return [build_segment(model, span) for span in spans(model.exits)]


@cache
def open_chain(kind: str, precision: Precision) -> list[ort.InferenceSession]:
    return [open_graph(variant(graph, precision)) for graph in traced(kind)]


def run(
    chain: list[ort.InferenceSession], ids: NDArray[np.int64], mask: NDArray[np.int64]
) -> list[Run]:
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    found = []
    for session in chain:
        hidden, *said = session.run(None, feeds)
        found.append(Run(hidden, said))
        feeds = {"hidden": hidden, "keep": np.arange(len(ids)), "attention_mask": mask}
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_exit_says_what_the_model_says(kind: str) -> None:
    model, chain = make_model(kind), open_chain(kind, "fp32")
    with torch.no_grad():
        expected = model.exit_outputs(torch.from_numpy(IDS), torch.from_numpy(MASK))
    for session, step, said in zip(chain, run(chain, IDS, MASK), expected, strict=True):
        names = [output.name for output in session.get_outputs()]
        assert names == ["hidden_out", "logits", "uncertainty"][: 2 + model.traits.learned]
        real = MASK.astype(bool) if model.traits.task == "token" else slice(None)
        np.testing.assert_allclose(step.said[0][real], said.logits.numpy()[real], atol=1e-5)
        assert step.said[0].std() > 0
        if model.traits.learned:
            np.testing.assert_allclose(step.said[1], said.uncertainty.numpy(), atol=1e-6)
            assert step.said[1].shape == (3,)
            assert np.ptp(step.said[1]) > 1e-4


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_answered_as_if_it_were_alone(kind: str, precision: Precision) -> None:
    chain = open_chain(kind, precision)
    together, alone = run(chain, IDS, MASK), run(chain, IDS[1:2, :3], MASK[1:2, :3])
    for both, one in zip(together, alone, strict=True):
        for many, single in zip(both.said, one.said, strict=True):
            shared = many[1:2, :3] if many.ndim == 3 else many[1:2]
            np.testing.assert_allclose(shared, single, atol=2e-6)


@pytest.mark.parametrize("kind", ["token", "learned", "attention-unbiased"])
def test_int8_stays_near(kind: str) -> None:
    exact, coarse = (run(open_chain(kind, p), IDS, MASK) for p in ("fp32", "int8"))
    for fine, rough in zip(exact, coarse, strict=True):
        for one, other in zip(fine.said, rough.said, strict=True):
            assert 0 < np.abs(one - other).max() < 0.2 * np.abs(one).max()


@pytest.mark.parametrize("kind", KINDS)
def test_heads_for_gpus_say_the_same_in_fp32(kind: str) -> None:
    exact = run(open_chain(kind, "fp32"), IDS, MASK)
    segments = [gpu_segment(segment.clone()) for segment in traced(kind)]
    coarse = GpuGraphs(segments).run(IDS, MASK)
    for fine, rough in zip(exact, coarse, strict=True):
        assert rough.hidden.dtype == np.float16
        for one, other in zip(fine.said, rough.said, strict=True):
            assert other.dtype == np.float32
            np.testing.assert_allclose(other, one, atol=0.02 * np.abs(one).max())
