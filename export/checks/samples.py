"""Inputs on which an exported bundle is compared with its model."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.tokenization.tokenizer import Text, TextEncoder, Tokens

ODD_ROWS = (1, 3)
# The longest is beyond where ModernBERT's windows end and DeBERTa's buckets begin: 64 and 128.
ODD_TOKENS = (1, 7, 33, 200)
_ROWS_PER_BATCH = 16

_SENTENCES = (
    "It works.",
    "I would not buy this again.",
    "The second half drags, but the ending makes up for it.",
    "Delivery took three weeks and the box was open when it came.",
    "A quiet, patient film about two brothers who hardly speak to each other.",
    "Terrible.",
    "The battery lasts two days if you leave the screen dimmed and switch off the radio.",
    "Nobody at the counter knew which platform the train would leave from.",
    "Shares fell by four per cent after the company lowered its forecast for the year.",
    "The goalkeeper saved two penalties in the last ten minutes.",
    "Why does the form ask for my telephone number twice?",
    "She laughed so hard that the people in the row behind us started laughing as well.",
    "Please cancel my order; I chose the wrong size.",
    "The plot is thin, the jokes are old, and still I had a wonderful evening.",
    "Researchers measured the temperature of the lake at eleven depths every hour for a month.",
    "No refunds, no answers, no apology.",
    "He speaks as if every sentence had been approved by a committee.",
    "An update is available: version 3.2 repairs the import of calendars with repeated events.",
    "The soup was cold and the waiter was colder.",
    "Best headphones I have owned, by far!",
    "It is neither good enough to praise nor bad enough to remember.",
    "The council will vote on the new cycle path between the station and the harbour on Monday.",
    "Fine.",
    "What starts as a comedy of manners turns, almost unnoticed, into something much darker.",
    "My account has been locked since yesterday and the reset link leads to an empty page.",
    "Rain is expected in the north, with strong winds along the coast.",
    "You can see every twist coming from a mile away.",
    "The new processor needs half the power and costs twice as much.",
    "Not bad at all for a first novel.",
    "I have read the instructions three times and I still do not know where the battery goes.",
    "Their lawyers declined to comment.",
    "Warm, funny, and over too soon.",
)


class Batch(NamedTuple):
    """Padded ids, all (rows, tokens) int64."""

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]
    token_type_ids: NDArray[np.int64]


def odd_batches(max_tokens: int, vocabulary: int) -> list[Batch]:
    """Return random ids at shapes that kernels and symbolic dimensions get wrong."""
    generator = np.random.default_rng(0)
    shapes = [(rows, min(tokens, max_tokens)) for rows in ODD_ROWS for tokens in ODD_TOKENS]
    return [_random(generator, rows, tokens, vocabulary) for rows, tokens in shapes]


def text_batches(tokenizer: Path, max_tokens: int, pad_id: int) -> list[Batch]:
    """Return sentences, and joined neighbours for length, as the model's own tokens."""
    longer = [f"{first} {second}" for first, second in pairwise(_SENTENCES)]
    texts = [Text(text) for text in (*_SENTENCES, *longer)]
    encoded = TextEncoder(tokenizer, max_tokens).encode(texts, truncate=True)
    return [
        _padded(encoded[i : i + _ROWS_PER_BATCH], pad_id)
        for i in range(0, len(encoded), _ROWS_PER_BATCH)
    ]


def _random(generator: np.random.Generator, rows: int, tokens: int, vocabulary: int) -> Batch:
    shape = (rows, tokens)
    lengths = generator.integers(1, tokens + 1, rows)
    lengths[0] = tokens
    mask = (np.arange(tokens) < lengths[:, None]).astype(np.int64)
    types = generator.integers(0, 2, shape)
    return Batch(generator.integers(0, vocabulary, shape), mask, types)


def _padded(encoded: Sequence[Tokens], pad_id: int) -> Batch:
    lengths = np.array([len(row.input_ids) for row in encoded])
    shape = (len(encoded), lengths.max())
    batch = Batch(np.full(shape, pad_id), np.zeros(shape, np.int64), np.zeros(shape, np.int64))
    for place, row in enumerate(encoded):
        batch.input_ids[place, : lengths[place]] = row.input_ids
        batch.attention_mask[place, : lengths[place]] = 1
        batch.token_type_ids[place, : lengths[place]] = row.token_type_ids
    return batch
