"""Tiny bundles of every task, their graphs written by hand: what the server must take."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper, parser

from export.chain.weights import WeightsFile
from export.files import save_joined, save_segment
from serve.bundle.loader import MANIFEST, TOKENIZER, sha256_of
from serve.bundle.manifest import WEIGHTS
from serve.rules.traits import Task
from tests.support.tiny import MAX_TOKENS, SPECIAL, WORDS, tiny_tokenizer

WIDTH = 8
EXITS = (1, 2, 4)
VOCAB_SIZE = len(SPECIAL) + len(WORDS)

LABELS: dict[Task, tuple[str, ...]] = {
    "single_label": ("negative", "neutral", "positive"),
    "multi_label": ("angry", "glad", "sad", "tired"),
    "regression": ("stars",),
    "token": ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"),
}

# Every token sees the mean of all: padding or mates that leak into it would be seen.
_LAYER = """
    {
      weights = Cast<to = 1>(attention_mask)
      column = Unsqueeze(weights, last)
      held = Mul(hidden_in, column)
      total = ReduceSum(held, middle)
      many = ReduceSum(column, middle)
      mean_in = Div(total, many)
      own = MatMul(hidden_in, W)
      others = MatMul(mean_in, V)
      sum = Add(own, others)
      hidden_out = Tanh(sum)
      masked = Mul(hidden_out, column)
      pooled_total = ReduceSum<keepdims = 0>(masked, middle)
      many_rows = ReduceSum<keepdims = 0>(column, middle)
      mean_out = Div(pooled_total, many_rows)
"""
_EMBED = "hidden_in = Gather(E, input_ids)\n"
_CHOOSE = """
      chosen = Gather(hidden, keep)
      shape = Shape(attention_mask)
      tokens = Gather(shape, middle)
      hidden_in = Slice(chosen, zero, tokens, middle)
"""
_IDS = "int64[rows, tokens] input_ids"
_MASK = "int64[rows, tokens] attention_mask"
_LATER = f"float[rows_in, tokens_in, {WIDTH}] hidden, int64[rows] keep, {_MASK}"
_HIDDEN = f"float[rows, tokens, {WIDTH}] hidden_out"


@dataclass(frozen=True)
class Kind:
    """A kind of tiny model: its task, whether layers share weights, whether heads know errors."""

    task: Task
    shared: bool = False
    learned: bool = False

    @property
    def per_token(self) -> bool:
        return self.task == "token"

    @property
    def labels(self) -> tuple[str, ...]:
        return LABELS[self.task]

    @property
    def said(self) -> str:
        axes = "rows, tokens" if self.per_token else "rows"
        learned = ", float[rows] uncertainty" if self.learned else ""
        return f"float[{axes}, {len(self.labels)}] logits{learned}"

    @property
    def head(self) -> str:
        """The nodes from `pooled` to what the head says."""
        nodes = "logits = MatMul(pooled, H)\n"
        if self.learned:
            first = "Gather<axis = 1>(pooled, none)" if self.per_token else "Identity(pooled)"
            nodes += f"read = {first}\nguess = MatMul(read, U)\nerror = Sigmoid(guess)\n"
            nodes += "uncertainty = Squeeze(error, last)\n"
        return nodes

    @property
    def outputs(self) -> list[str]:
        return ["logits", *(["uncertainty"] if self.learned else [])]


def write_task_bundle(
    folder: Path, kind: Kind, name: str = "", sure: float = 16.0, alike: bool = False
) -> Path:
    """Write a bundle of random weights whose heads become surer with depth; return its folder.

    With `alike`, layers change little and all heads are one, so that exits mostly agree.
    """
    out = folder / (name or kind.task)
    weights = _AlikeWeights(sure) if alike else _Weights(sure)
    segments = out / "segments" / "fp32"
    weights_file = WeightsFile(segments / WEIGHTS)
    models = _chain(kind, weights)
    for file, model in models.items():
        save_segment(ir.from_proto(model), segments / file, weights_file)
    save_joined([segments / file for file in models], segments / "joined.onnx")
    tiny_tokenizer().save(str(out / TOKENIZER))
    files = {p.relative_to(out).as_posix(): sha256_of(p) for p in out.rglob("*") if p.is_file()}
    (out / MANIFEST).write_text(json.dumps(_manifest(kind, files)))
    return out


class _Weights:
    """The random weights of a model."""

    def __init__(self, sure: float) -> None:
        self._draw, self._sure = np.random.default_rng(0), sure

    def layer(self) -> dict[str, np.ndarray]:
        return {name: self._normal(WIDTH, WIDTH) for name in "WV"}

    def embeddings(self) -> dict[str, np.ndarray]:
        return {"E": 3 * self._normal(VOCAB_SIZE, WIDTH)}

    def head(self, depth: int, num_labels: int) -> dict[str, np.ndarray]:
        return {
            "H": self._sure * depth * self._normal(WIDTH, num_labels),
            "U": 3 * self._normal(WIDTH, 1),
        }

    def _normal(self, *shape: int) -> np.ndarray:
        return (self._draw.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


class _AlikeWeights(_Weights):
    def __init__(self, sure: float) -> None:
        super().__init__(sure)
        self._heads: dict[int, dict[str, np.ndarray]] = {}

    def layer(self) -> dict[str, np.ndarray]:
        return {"W": np.eye(WIDTH, dtype=np.float32), "V": 0.2 * self._normal(WIDTH, WIDTH)}

    def head(self, depth: int, num_labels: int) -> dict[str, np.ndarray]:
        return self._heads.setdefault(num_labels, super().head(1, num_labels))


def _chain(kind: Kind, weights: _Weights) -> dict[str, onnx.ModelProto]:
    graphs = {}
    embeddings = weights.embeddings() if kind.shared else None
    shared = weights.layer() if kind.shared else None
    pool = "pooled = Identity(hidden_out)" if kind.per_token else "pooled = Identity(mean_out)"
    for depth in EXITS:
        values = (shared or weights.layer()) | weights.head(depth, len(kind.labels))
        start = _CHOOSE
        if depth == 1:
            start, values = _EMBED, values | (embeddings or weights.embeddings())
        body = _LAYER.replace("{", "{" + start, 1) + pool + "\n" + kind.head + "}"
        inputs = _LATER if depth > 1 else f"{_IDS}, {_MASK}"
        graphs[f"{depth:02d}.onnx"] = _model(
            f"({inputs}) => ({_HIDDEN}, {kind.said})", body, values
        )
    return graphs


def _model(signature: str, body: str, weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    header = '<ir_version: 10, opset_import: ["" : 18]>'
    model = parser.parse_model(f"{header}\ngraph {signature}\n{body}")
    constants = {
        "zero": np.array([0], np.int64),
        "none": np.array(0, np.int64),
        "middle": np.array([1], np.int64),
        "last": np.array([-1], np.int64),
    }
    used = {name for node in model.graph.node for name in node.input}
    for name, value in (constants | weights).items():
        if name in used:
            model.graph.initializer.append(numpy_helper.from_array(value, name))
    onnx.checker.check_model(model)
    return model


def _manifest(kind: Kind, files: dict[str, str]) -> dict[str, Any]:
    return {
        "format_version": 3,
        "task": kind.task,
        "labels": kind.labels,
        "exits": [{"layer": layer} for layer in EXITS],
        "width": WIDTH,
        "max_tokens": MAX_TOKENS,
        "pad_id": 0,
        "token_types": False,
        "learned": kind.learned,
        "head": {"pooling": "tokens" if kind.per_token else "mean", "pooler": False},
        "policy": {"default": {"rule": "never"}},
        "variants": {
            "fp32": {
                **_graphs(kind),
                "parity": {"max_logit_error": 0, "label_agreement": 1, "rows": 1},
            }
        },
        "source": {
            "model": "by hand",
            "offramp_version": "0",
            "torch_version": "none",
            "transformers_version": "none",
        },
        "files": files,
    }


def _graphs(kind: Kind) -> dict[str, Any]:
    later = ["hidden", "keep", "attention_mask"]
    return {
        "segments": [
            {
                "file": f"segments/fp32/{layer:02d}.onnx",
                "exit_layer": layer,
                "inputs": later if layer > 1 else ["input_ids", "attention_mask"],
                "outputs": ["hidden_out", *kind.outputs],
            }
            for layer in EXITS
        ],
        "joined": "segments/fp32/joined.onnx",
        "weights": f"segments/fp32/{WEIGHTS}",
    }
