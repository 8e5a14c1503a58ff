"""A tiny model with random weights, and its bundle.

Most tests of the server need the names here and no PyTorch, which takes ten seconds to import.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from serve.bundle.manifest import Precision
from serve.bundle.recording import RECORDING
from serve.policy.document import Policy
from tests.support.wordpiece import SPECIAL, save_tokenizer, wordpiece

if TYPE_CHECKING:
    from models.multi_exit import MultiExitModel

DEPTH = 4
LABELS = ("negative", "neutral", "positive")
MAX_TOKENS = 64
WORDS = tuple(f"w{i}" for i in range(196))

POLICY = Policy.model_validate(
    {
        "default": {"rule": "never"},
        "profiles": {
            "balanced": {"rule": "entropy", "threshold": 0.6},
            "fast": {"rule": "layer", "layer": 1},
        },
    }
)

Family = Literal["bert", "albert"]
_SIZES: dict[str, Any] = {
    "vocab_size": len(SPECIAL) + len(WORDS),
    "hidden_size": 32,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": MAX_TOKENS,
    "id2label": dict(enumerate(LABELS)),
    "label2id": {label: i for i, label in enumerate(LABELS)},
    "initializer_range": 0.2,
}


def tiny_model(seed: int = 0, family: Family = "bert") -> "MultiExitModel":
    """Return four layers of width 32; the confidence of the heads grows with depth."""
    import torch
    from transformers import AlbertConfig, BertConfig

    from models.encoders.families import build_encoder
    from models.multi_exit import ExitConfig, HeadConfig, MultiExitModel

    torch.manual_seed(seed)
    if family == "albert":
        encoder = build_encoder(AlbertConfig(**_SIZES, embedding_size=16))
    else:
        encoder = build_encoder(BertConfig(**_SIZES))
    exits = ExitConfig(exits=tuple(range(1, DEPTH + 1)), head=HeadConfig(pooling="mean"))
    model = MultiExitModel(encoder, exits).eval()
    for depth, head in enumerate(model.heads, 1):
        head.classifier.weight.data.mul_(2 * depth)
    return model


def recording() -> NDArray[np.float32]:
    """Return logits like those of calibration data: (exits, 40 rows, labels)."""
    confidence = np.array([0.5, 6, 6, 6])[:, None, None]
    logits = np.random.default_rng(0).standard_normal((DEPTH, 40, len(LABELS)))
    return (logits * confidence).astype(np.float32)


def tiny_tokenizer() -> Tokenizer:
    """Return a WordPiece tokenizer over two hundred words."""
    return wordpiece(WORDS)


def write_tiny_model(folder: Path, family: Family = "bert", **files: str) -> Path:
    """Write a folder of the model and its tokenizer, and JSON files of these texts; return it."""
    tiny_model(family=family).save(folder)
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    for stem, text in {"policy": POLICY.model_dump_json(exclude_none=True), **files}.items():
        (folder / f"{stem}.json").write_text(text)
    return folder


def write_tiny_classifier(folder: Path, **sizes: Any) -> Path:
    """Write a plain classifier of transformers, of these sizes where they differ; return it."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    BertForSequenceClassification(BertConfig(**_SIZES | sizes)).save_pretrained(folder)
    save_tokenizer(tiny_tokenizer(), folder)
    return folder


def write_tiny_bundle(
    folder: Path,
    name: str = "tiny",
    precisions: tuple[Precision, ...] = ("fp32", "int8"),
    family: Family = "bert",
    exits: tuple[int, ...] | None = None,
) -> Path:
    """Write the model to `folder` and export it to a bundle beside it; return the bundle."""
    from export import bundle as bundles

    model_folder = write_tiny_model(folder / f"{name}-model", family)
    np.save(model_folder / RECORDING, recording())
    planned = bundles.plan(model_folder, precisions, exits)
    bundles.write(planned, folder / name)
    return folder / name
