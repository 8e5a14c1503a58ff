"""Layer 0: a linear model over hashed token n-grams, which answers before the first layer.

What fastText has (Joulin et al. 2017), over the tokenizer's ids: it knows no order of words beyond
three tokens, and is a poor classifier but a good first exit.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from serve.rules.signals import sigmoid
from serve.rules.traits import Task

# Longer texts go on to the first layer.
MOST_TOKENS: Final = 512
SCALE: Final = 10.0
_FIRST, _SECOND, _THIRD, _OF_THREE = 1_000_003, 7_919, 104_729, 17


class NgramTable:
    """One row of label logits for every token id, and for every bucket of hashed n-grams.

    Attributes:
        vocabulary: token ids are below it.
        buckets: the number of rows that 2-grams and 3-grams share.
        bias: (labels,) float32.
    """

    def __init__(self, rows: NDArray[np.floating], buckets: int, bias: Sequence[float]) -> None:
        """Take (vocabulary + buckets, labels) rows, those of token ids first."""
        self.vocabulary, self.buckets = len(rows) - buckets, buckets
        self.bias = np.array(bias, np.float32)
        self._rows = np.array(rows, np.float32, order="C")

    def logits(self, input_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return (labels,) float32 logits of a text; NaN of one longer than `MOST_TOKENS`.

        Args:
            input_ids: (tokens,) special tokens included, one or more.
        """
        if len(input_ids) > MOST_TOKENS:
            return np.full(len(self.bias), np.nan, np.float32)
        places = ngram_rows(input_ids, self.vocabulary, self.buckets)
        # Row after row, in this order: the sum is the same wherever it is made.
        total = np.add.reduce(self._rows.take(places, axis=0), axis=0)
        logits: NDArray[np.float32] = total * np.float32(SCALE / len(places)) + self.bias
        return logits

    def of_texts(self, texts: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        """Return (texts, labels) the logits of each text."""
        found = np.empty((len(texts), len(self.bias)), np.float32)
        for place, input_ids in enumerate(texts):
            found[place] = self.logits(input_ids)
        return found


def ngram_rows(input_ids: NDArray[np.int64], vocabulary: int, buckets: int) -> NDArray[np.int64]:
    """Return the table's rows of all 1-grams, 2-grams and 3-grams of a text, in this order.

    Args:
        input_ids: (tokens,) one or more.
        vocabulary: number of rows for token ids, which come first.
        buckets: number of rows for the others.
    """
    num_tokens = len(input_ids)
    rows = np.empty(max(1, 3 * num_tokens - 3), np.int64)
    rows[:num_tokens] = input_ids
    pairs, triples = rows[num_tokens : 2 * num_tokens - 1], rows[2 * num_tokens - 1 :]
    np.multiply(input_ids[:-1], _FIRST, out=pairs)
    pairs += _SECOND * input_ids[1:]
    np.multiply(input_ids[2:], _THIRD, out=triples)
    triples += pairs[:-1]
    triples += _OF_THREE
    hashed = rows[num_tokens:]
    hashed %= buckets
    hashed += vocabulary
    return rows


def table_confidence(
    task: Task, logits: NDArray[np.float32], temperature: float
) -> NDArray[np.float32]:
    """Return (...,) the largest probability at a temperature; of several labels the least sure's.

    Of each of several labels that is the probability of yes or of no. NaN stays NaN.

    Args:
        task: single_label or multi_label.
        logits: (..., labels).
        temperature: the table's.
    """
    logits = logits / np.float32(temperature)
    if task == "multi_label":
        p = sigmoid(logits)
        least: NDArray[np.float32] = np.minimum.reduce(np.maximum(p, 1 - p), axis=-1)
        return least
    shifted = np.exp(logits - np.maximum.reduce(logits, axis=-1, keepdims=True))
    top: NDArray[np.float32] = 1 / np.add.reduce(shifted, axis=-1)
    return top
