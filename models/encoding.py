"""Texts to token ids, by the very code that will tokenize for the served model."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from models.errors import TrainingFailed
from models.examples import Example
from serve.bundle import TOKENIZER
from serve.tokens import Text, TextEncoder

_CONFIG = "tokenizer_config.json"


@dataclass(frozen=True)
class EncodedRow:
    """One example as token ids, special tokens included.

    Attributes:
        ids: token ids.
        types: token type ids, 1 for the tokens of a second text.
        label: the label's id.
    """

    ids: list[int]
    types: list[int]
    label: int


def encode(folder: Path, examples: Sequence[Example], max_tokens: int) -> list[EncodedRow]:
    """Tokenize examples with a model folder's tokenizer, cutting each to `max_tokens` tokens.

    Raises:
        TrainingFailed: the folder has no `tokenizer.json`.
    """
    encoder = TextEncoder(_tokenizer_path(folder), max_tokens)
    found = encoder.encode([Text(e.text_a, e.text_b) for e in examples], truncate=True)
    return [
        EncodedRow(tokens.input_ids.tolist(), tokens.token_type_ids.tolist(), example.label)
        for tokens, example in zip(found, examples, strict=True)
    ]


def copy_tokenizer(source: Path, folder: Path, max_tokens: int) -> None:
    """Write another folder's tokenizer into a model folder, to neither pad nor cut by itself.

    Args:
        source: a transformers folder.
        folder: the model folder.
        max_tokens: longest input the model takes.
    """
    tokenizer = Tokenizer.from_file(str(_tokenizer_path(source)))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.save(str(folder / TOKENIZER))
    path = source / _CONFIG
    config = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    config.pop("name_or_path", None)
    config["model_max_length"] = max_tokens
    (folder / _CONFIG).write_text(json.dumps(config, indent=1) + "\n", "utf-8")


def _tokenizer_path(folder: Path) -> Path:
    path = folder / TOKENIZER
    if not path.is_file():
        raise TrainingFailed(f"{folder} has no {TOKENIZER}: save the model's fast tokenizer there")
    return path
