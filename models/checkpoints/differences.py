"""Finding where a text, as it is served, differs from what transformers makes of it."""

from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from serve.tokenization.tokenizer import Text, TextEncoder, Tokens

# Characters of a text in a message.
_SHOWN = 60


class Row(NamedTuple):
    """A text and its tokens as they are served, cut to the longest input."""

    text: Text
    tokens: Tokens
    max_tokens: int

    @classmethod
    def of(cls, text: Text, tokenizer: TextEncoder) -> "Row":
        """Tokenize a text as the server does."""
        (tokens,) = tokenizer.encode([text], truncate=True)
        return cls(text, tokens, tokenizer.max_tokens)

    @property
    def inputs(self) -> tuple[Tensor, Tensor]:
        """Ids and token types, each (1, tokens)."""
        ids, types = self.tokens.input_ids, self.tokens.token_type_ids
        return torch.from_numpy(ids)[None], torch.from_numpy(types)[None]

    def __str__(self) -> str:
        shown = " / ".join(part for part in self.text if part is not None)
        return repr(shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}...")


def differing_ids(row: Row, original: PreTrainedTokenizerBase, types_too: bool) -> str | None:
    """Return the first token, or token type if the model has them, that differs; None if none."""
    wanted = original(*row.text, truncation=True, max_length=row.max_tokens)
    ids, found = wanted["input_ids"], row.tokens.input_ids.tolist()
    place = _first_difference(found, ids)
    if place is not None:
        theirs, ours = (_token(original, each[place : place + 1]) for each in (ids, found))
        return (
            f"in {row}, token {place + 1} is {theirs} by AutoTokenizer, and {ours} as it would be "
            "served. If transformers is right, save the tokenizer as it reads it: "
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )
    types = wanted.get("token_type_ids") or [0] * len(ids)
    place = _first_difference(row.tokens.token_type_ids.tolist(), types) if types_too else None
    if place is not None:
        return (
            f"in {row}, token {place + 1} has the type {types[place]} by AutoTokenizer, and "
            f"{row.tokens.token_type_ids[place]} as it would be served: model_input_names in "
            "tokenizer_config.json says whether the model gets token_type_ids"
        )
    return None


def _first_difference(found: list[int], wanted: list[int]) -> int | None:
    places = range(max(len(found), len(wanted)))
    return next((i for i in places if found[i : i + 1] != wanted[i : i + 1]), None)


def _token(original: PreTrainedTokenizerBase, ids: list[int]) -> str:
    return f"{original.convert_ids_to_tokens(ids[0])!r} (id {ids[0]})" if ids else "missing"


class LogitGap(NamedTuple):
    """The logit of a text that differs most.

    Attributes:
        size: the difference, as a share of the original where that is larger than 1.
        place: `token 3, ` of a tagger, else empty; and which label.
        theirs: transformers' logit.
        ours: the one that would be served.
    """

    size: float
    place: str
    theirs: float
    ours: float


def logit_gap(found: Tensor, wanted: Tensor, labels: list[str]) -> LogitGap:
    """Compare (labels,) or (tokens, labels) logits of one text. NaN is infinitely far off."""
    gaps = ((found - wanted).abs() / wanted.abs().clamp(min=1)).nan_to_num(torch.inf).flatten()
    worst = int(gaps.argmax())
    token = f"token {worst // len(labels) + 1}, " if found.ndim == 2 else ""
    place = f"{token}the logit of {labels[worst % len(labels)]!r}"
    theirs, ours = (float(each.flatten()[worst]) for each in (wanted, found))
    return LogitGap(float(gaps[worst]), place, theirs, ours)
