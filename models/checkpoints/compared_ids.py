"""Whether a served tokenizer gives the ids and types that transformers' own gives."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from models.errors import UnusableCheckpoint
from serve.errors import InvalidRequest
from serve.tokenization.tokenizer import Text, TextEncoder, Tokens

_TEXTS = (
    "The Quick brown FOX paid 3.50 EUR, didn't it?",
    "Ça alors ! Élodie était DÉÇUE par la crème brûlée à Zürich.",
    "Cafe\u0301 nai\u0308ve A\u030angstro\u0308m",  # accents as characters of their own
    "日本語の文 and 中文字 beside 한국어, русский язык, ελληνικά, עברית",
    " Two  spaces,\ta tab,\na line\u00a0and a hard space ",
    "\U0001f642\U0001f642 e-mail a.b@example.org/x?y=1 #tag @name don't",
    "İstanbul, Straße, ﬁne, Ⅳ, ½, “quotes” and… dots",
    "unaffordable antidisestablishmentarianism xqzt 1234567890",
)
_PAIRS = (
    ("A Dog runs through the snow.", "Un animal Bouge vite, là-bas."),
    ("Who wrote it?", "?"),
)
# A model that takes more is compared on as many.
_MOST_TOKENS = 8192
_TOKENS_PER_TEXT = 8
# Characters of a text in a message.
_SHOWN = 60


class Row(NamedTuple):
    """A text and its tokens as they are served, cut to the longest input."""

    text: Text
    tokens: Tokens

    @property
    def inputs(self) -> tuple[Tensor, Tensor]:
        """Ids and token types, each (1, tokens)."""
        ids, types = self.tokens.input_ids, self.tokens.token_type_ids
        return torch.from_numpy(ids)[None], torch.from_numpy(types)[None]

    def __str__(self) -> str:
        shown = " / ".join(part for part in self.text if part is not None)
        return repr(shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}...")


def sample_rows(folder: Path, served: TextEncoder, added: Sequence[str], pairs: bool) -> list[Row]:
    """Return tokenized texts on which tokenizers and models differ, unless they mean the same.

    The texts have mixed case, accents and several scripts. One is too long for the model. The last
    ones hold the added tokens, each alone and right after a word.

    Args:
        folder: for messages.
        served: the tokenizer.
        added: tokens that a tokenizer takes out of a text before it reads words.
        pairs: whether the model takes pairs of texts.

    Raises:
        UnusableCheckpoint: the tokenizer fails on one of them.
    """
    sentences = min(served.max_tokens, _MOST_TOKENS) // 4 + 1
    long = " ".join(f"Sentence {i} goes On." for i in range(sentences))
    texts = [Text(each) for each in (*_TEXTS, long)]
    if pairs:
        texts += [Text(*each) for each in (*_PAIRS, (long, "A Short one."), ("A Short one.", long))]
    for i in range(0, len(added), _TOKENS_PER_TEXT):
        part = added[i : i + _TOKENS_PER_TEXT]
        texts.append(Text(" ".join(f"see {token} here{token}and" for token in part)))
    try:
        return list(map(Row, texts, served.encode(texts, truncate=True)))
    except InvalidRequest as error:
        raise UnusableCheckpoint(
            f"{folder}: the tokenizer fails on sample texts: {error}"
        ) from None


def added_tokens(
    served: TextEncoder, original: PreTrainedTokenizerBase | None, vocab_size: int
) -> list[str]:
    """Return the tokens that either tokenizer takes out of a text before it reads words.

    transformers adds special tokens of its own to a small vocabulary, which have no embeddings.
    """
    both = served.tokenizer.get_added_tokens_decoder()
    if original is not None:
        both |= {i: token for i, token in original.added_tokens_decoder.items() if i < vocab_size}
    return list(dict.fromkeys(token.content for token in both.values()))


def differing_ids(
    rows: Sequence[Row], original: PreTrainedTokenizerBase, max_tokens: int
) -> str | None:
    """Return where a text first has another token or type by transformers; None if nowhere."""
    for row in rows:
        wanted = original(*row.text, truncation=True, max_length=max_tokens, verbose=False)
        ids, found = wanted["input_ids"], row.tokens.input_ids.tolist()
        place = _first_difference(found, ids)
        if place is not None:
            theirs, ours = (_token(original, each[place : place + 1]) for each in (ids, found))
            return (
                f"in {row}, token {place + 1} is {theirs} by AutoTokenizer, and {ours} as it would "
                "be served. If transformers is right, save the tokenizer as it reads it: "
                "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
            )
        types = wanted.get("token_type_ids") or [0] * len(ids)
        served = row.tokens.token_type_ids.tolist()
        place = _first_difference(served, types)
        if place is not None:
            return (
                f"in {row}, token {place + 1} has the type {types[place]} by AutoTokenizer, and "
                f"{served[place]} as it would be served: model_input_names in "
                "tokenizer_config.json says whether the model gets token_type_ids"
            )
    return None


def check_ids(folder: Path, served: TextEncoder, original: PreTrainedTokenizerBase) -> None:
    """Compare a tokenizer with transformers' own before a model is trained with it.

    Raises:
        UnusableCheckpoint: they differ.
    """
    rows = sample_rows(folder, served, (), pairs=True)
    if found := differing_ids(rows, original, served.max_tokens):
        raise UnusableCheckpoint(f"{folder}: the tokenizer differs from transformers: {found}")


def _first_difference(found: list[int], wanted: list[int]) -> int | None:
    places = range(max(len(found), len(wanted)))
    return next((i for i in places if found[i : i + 1] != wanted[i : i + 1]), None)


def _token(original: PreTrainedTokenizerBase, ids: list[int]) -> str:
    return f"{original.convert_ids_to_tokens(ids[0])!r} (id {ids[0]})" if ids else "missing"
