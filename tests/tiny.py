"""A tiny real model and its bundle: random weights, everything else as in production."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel

from export import bundle as bundles
from models.multi_exit import ExitConfig, HeadConfig, MultiExitModel
from serve.policy import Policy

DEPTH = 4
LABELS = ("negative", "neutral", "positive")
MAX_TOKENS = 64
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
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


def tiny_model(seed: int = 0) -> MultiExitModel:
    """Return four layers of width 32 whose heads are spread from unsure to sure."""
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=32,
        num_hidden_layers=DEPTH,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=MAX_TOKENS,
        id2label=dict(enumerate(LABELS)),
        label2id={label: i for i, label in enumerate(LABELS)},
        initializer_range=0.2,
        attn_implementation="sdpa",
    )
    encoder = BertModel(config, add_pooling_layer=False)
    exits = ExitConfig(exits=tuple(range(1, DEPTH + 1)), head=HeadConfig(pooling="mean"))
    model = MultiExitModel(encoder, exits).eval()
    for depth, head in enumerate(model.heads, 1):
        head.classifier.weight.data.mul_(2 * depth)
    return model


def tiny_tokenizer() -> Tokenizer:
    """Return a WordPiece tokenizer over two hundred words."""
    vocabulary = {word: i for i, word in enumerate((*SPECIAL, *WORDS))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def write_tiny_bundle(folder: Path, name: str = "tiny") -> Path:
    """Write the model to `folder` and export it to a bundle beside it; return the bundle."""
    model_folder = folder / f"{name}-model"
    tiny_model().save(model_folder)
    tiny_tokenizer().save(str(model_folder / "tokenizer.json"))
    (model_folder / "policy.json").write_text(POLICY.model_dump_json(exclude_none=True))
    planned = bundles.plan(model_folder, ("fp32", "int8"))
    out = folder / name
    bundles.write(planned, out, report=lambda step: None)
    return out
