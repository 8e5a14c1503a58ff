"""Whether a served tokenizer gives the ids of transformers' own, and where the folder disagrees."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import TokenizersBackend

from models.checkpoints.auto_tokenizer import TOKENIZER_CONFIG, TokenIds, reference_ids
from models.checkpoints.sample_texts import MIXED_TEXTS
from models.errors import UnusableCheckpoint, in_one_line
from models.model_files import read_json
from serve.bundle.loader import TOKENIZER
from serve.tokenization.tokenizer import Text

# What of a tokenizer.json decides on ids.
_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "added_tokens", "model")
# Of a tokenizer with thousands of them, so many are compared.
_MOST_ADDED = 512


def check_settings(folder: Path, tokenizer: TokenizersBackend) -> None:
    """Refuse settings that no bundle can hold.

    Raises:
        UnusableCheckpoint: the message names setting and file.
    """
    if tokenizer.truncation_side != "right":
        stated = "truncation_side" in read_json(folder, TOKENIZER_CONFIG)
        where = f"{TOKENIZER_CONFIG}: truncation_side" if stated else f"{TOKENIZER}: truncation"
        raise UnusableCheckpoint(
            f"{folder}/{where} is {tokenizer.truncation_side}, and texts that are too long are cut "
            "at their end only. Set it to right if the model may see their beginning instead"
        )
    if tokenizer.split_special_tokens:
        raise UnusableCheckpoint(
            f"{folder}/{TOKENIZER_CONFIG}: split_special_tokens is true, which no {TOKENIZER} can "
            "hold. Set it to false if a special token's name in a text may become that token"
        )


def check_kind(
    folder: Path, tokenizer: TokenizersBackend, stated: dict[str, Any], served: dict[str, Any]
) -> None:
    """Refuse a folder's own `tokenizer.json` of which transformers makes another kind.

    Raises:
        UnusableCheckpoint: it does, because it goes by the family or by a wrong class name.
    """
    found, made = (each.get("model", {}).get("type") for each in (stated, served))
    if found not in (None, made):
        raise UnusableCheckpoint(
            f"{folder}/{TOKENIZER} is a {found} tokenizer, and transformers makes a {made} of it, "
            f'as {type(tokenizer).__name__}. Write "tokenizer_class": "PreTrainedTokenizerFast" '
            f"into {TOKENIZER_CONFIG} if {TOKENIZER} is right"
        )


def compare_ids(
    folder: Path, tokenizer: TokenizersBackend, stated: dict[str, Any], served: dict[str, Any]
) -> tuple[str, ...]:
    """Compare ids and types of sample texts; return remarks for the user.

    Args:
        folder: for messages.
        tokenizer: transformers' tokenizer.
        stated: the folder's own `tokenizer.json`; empty if there is none.
        served: the one that is to be served.

    Raises:
        UnusableCheckpoint: the served one gives other ids than transformers.
    """
    inputs = sample_inputs(tokenizer)
    try:
        found, reference = _encode(served, inputs), reference_ids(tokenizer, inputs)
    except Exception as error:  # the libraries raise no narrower type
        raise UnusableCheckpoint(
            f"{folder}: transformers' {type(tokenizer).__name__} fails on sample texts: "
            f"{in_one_line(error)}"
        ) from None
    for given, expected, ids in zip(inputs, reference, found, strict=True):
        if ids != expected:
            raise UnusableCheckpoint(
                f"{folder}: transformers' {type(tokenizer).__name__} gives {tuple(given)!r} the "
                f"ids {expected.ids} and types {expected.types}, and its {TOKENIZER} {ids.ids} and "
                f"{ids.types}: it cannot be served"
            )
    name, notes = type(tokenizer).__name__, []
    if "auto_map" in read_json(folder, TOKENIZER_CONFIG):
        notes.append(
            f"{TOKENIZER_CONFIG} names code of the model's own (auto_map), which is not run: the "
            f"ids are those of transformers' {name}"
        )
    parts = [part for part in _PARTS if stated and stated.get(part) != served.get(part)]
    alone = _encode(stated, inputs) if parts else found
    if alone != found:
        same_ids = [row.ids for row in alone] == [row.ids for row in found]
        other = "token types" if same_ids else "ids"
        notes.append(
            f"{TOKENIZER} alone gives other {other} than transformers' {name}, which takes "
            f"{', '.join(parts)} from {TOKENIZER_CONFIG} or its defaults. Those are served"
        )
    return tuple(notes)


def sample_inputs(tokenizer: TokenizersBackend) -> list[Text]:
    """Return texts and pairs in which everything occurs that settings may change."""
    added = [token.content for token in tokenizer.added_tokens_decoder.values()][:_MOST_ADDED]
    written = [f"It {token}was {token.lower()} {token}." for token in added]
    pairs = [Text(text, MIXED_TEXTS[0]) for text in MIXED_TEXTS]
    return [*map(Text, MIXED_TEXTS), *map(Text, written), *pairs]


def _encode(document: Mapping[str, Any], inputs: Sequence[Text]) -> list[TokenIds]:
    plain = {**document, "truncation": None, "padding": None}
    tokenizer = Tokenizer.from_str(json.dumps(plain))
    pairs = [each.text if each.text_pair is None else tuple(each) for each in inputs]
    return [TokenIds(each.ids, each.type_ids) for each in tokenizer.encode_batch(pairs)]
