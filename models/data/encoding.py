"""Texts to token ids, with the tokenization code of the server."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.checkpoints.auto_tokenizer import load_auto_tokenizer
from models.checkpoints.compared_ids import check_ids
from models.checkpoints.tokenizer_files import check_embeddings, read_tokenizer
from models.data.alignment import tag_tokens
from models.data.examples import Example, Target
from models.encoders.families import read_config
from models.errors import TrainingFailed
from models.model_files import CONFIG, check_files, read_json
from serve.bundle.loader import TOKENIZER
from serve.tokenization.tokenizer import Text, TextEncoder, Tokens

_TOKENIZER_CONFIG = "tokenizer_config.json"
# Inputs of a tokenizer are cut to so many tokens where it is compared with transformers'.
_COMPARED_TOKENS = 128


@dataclass(frozen=True)
class EncodedRow:
    """One example as token ids, special tokens included.

    Attributes:
        ids: token ids.
        types: token type ids, 1 for the tokens of a second text.
        label: the label's id; 1.0 or 0.0 for each label; a value; or a list with each token's
            tag, `IGNORED` where there is none.
    """

    ids: list[int]
    types: list[int]
    label: int | tuple[float, ...] | float | list[int]


def encode(folder: Path, examples: Sequence[Example], max_tokens: int) -> list[EncodedRow]:
    """Tokenize examples with a model folder's tokenizer; cut each to `max_tokens` tokens.

    Raises:
        TrainingFailed: the folder has no `tokenizer.json`.
    """
    path = _tokenizer_path(folder)
    encoded = TextEncoder(path, max_tokens).encode(
        [Text(e.text_a, e.text_b) for e in examples], truncate=True
    )
    tagged = [(e.text_a, e.label) for e in examples if isinstance(e.label, list)]
    token_tags = iter(tag_tokens(path, tagged, max_tokens))
    return [
        _row(tokens, example.label, token_tags)
        for tokens, example in zip(encoded, examples, strict=True)
    ]


def copy_tokenizer(source: Path, folder: Path, max_tokens: int) -> None:
    """Write a model folder's tokenizer, as transformers reads that of its encoder.

    Args:
        source: a transformers folder.
        folder: the model folder.
        max_tokens: longest input of the model.
    """
    write_tokenizer(source, folder)
    config = read_json(source, _TOKENIZER_CONFIG)
    config.pop("name_or_path", None)
    config["model_max_length"] = max_tokens
    (folder / _TOKENIZER_CONFIG).write_text(json.dumps(config, indent=1) + "\n", "utf-8")


def write_tokenizer(source: Path, folder: Path) -> None:
    """Write what transformers makes of a folder's tokenizer as another one's `tokenizer.json`.

    Raises:
        UnusableCheckpoint: there is no tokenizer, or none that can be served.
    """
    check_files(source)
    config = read_json(source, CONFIG)
    made_by = "Offramp" if "offramp" in config else "transformers"
    family = read_config(source).model_type
    made = read_tokenizer(source, made_by, family)
    if type(rows := config.get("vocab_size")) is int:
        check_embeddings(made, rows, source)
    (folder / TOKENIZER).write_text(made.content, "utf-8")
    if made_by == "transformers":
        served = TextEncoder(folder / TOKENIZER, _COMPARED_TOKENS)
        check_ids(source, served, load_auto_tokenizer(source, family))


def _row(tokens: Tokens, label: Target, token_tags: Iterator[list[int]]) -> EncodedRow:
    ids, types = tokens.input_ids.tolist(), tokens.token_type_ids.tolist()
    if isinstance(label, list):
        return EncodedRow(ids, types, next(token_tags))
    return EncodedRow(ids, types, label)


def _tokenizer_path(folder: Path) -> Path:
    check_files(folder)
    path = folder / TOKENIZER
    if not path.is_file():
        raise TrainingFailed(f"{folder} has no {TOKENIZER}: save the model's fast tokenizer there")
    return path
