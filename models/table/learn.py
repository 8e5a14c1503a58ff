"""Learning a table from what a model answers at full depth; labels are not needed.

As fastText (Joulin et al. 2017), but over the ids of the model's own tokenizer, and from
probabilities instead of labels.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from models.quality.recorded import Recorded
from models.quality.temperatures import fit_temperatures
from models.training.losses import LOSSES
from serve.rules.table import MOST_TOKENS, SCALE, ngram_rows
from serve.rules.traits import Traits
from serve.tokenization.tokenizer import Tokens

LEARNING_RATE, BATCH_SIZE = 0.02, 256
# Texts come again until about so many have been seen, but no more often than this.
ROWS_SEEN, MOST_PASSES = 40_000, 20
MOST_BUCKETS, FEWEST_BUCKETS = 1 << 18, 1 << 12
# Of the file, where the vocabulary leaves room for the fewest buckets.
MOST_BYTES = 4 << 20
_FLOAT16_BYTES = 2
# One text of so many is kept back, to tell how sure the table may be.
HELD_OUT = 10
# That teach: with more of them the table gains little, and each is run through the model.
MOST_TEXTS, MOST_TOKENS_IN_ALL = 70_000, 5_000_000


class Learned(NamedTuple):
    """A table as it is stored.

    Attributes:
        rows: (vocabulary + buckets, labels), float16.
        buckets: how many of the rows n-grams share.
        bias: (labels,).
        temperature: at which its confidence is how often it gives full depth's answer.
        agreement: share of texts, which did not teach it, to which it gives that answer.
    """

    rows: NDArray[np.float16]
    buckets: int
    bias: tuple[float, ...]
    temperature: float
    agreement: float


def num_buckets(vocab_size: int, num_labels: int) -> int:
    """Return how many rows n-grams share: a power of two, fewer where labels are many."""
    room = MOST_BYTES // (_FLOAT16_BYTES * num_labels) - vocab_size
    return min(MOST_BUCKETS, max(FEWEST_BUCKETS, 1 << (max(room, 1).bit_length() - 1)))


def drawn(tokens: Sequence[Tokens], seed: int) -> list[int]:
    """Return which texts teach, in a random order: all, unless they are very many or long.

    Those are left out of which the server asks no table.
    """
    order = np.random.default_rng(seed).permutation(len(tokens)).tolist()
    short = [place for place in order if len(tokens[place].input_ids) <= MOST_TOKENS][:MOST_TEXTS]
    total = np.cumsum([len(tokens[place].input_ids) for place in short])
    return short[: np.searchsorted(total, MOST_TOKENS_IN_ALL, "right")]


def learn(
    tokens: Sequence[Tokens],
    logits: NDArray[np.float32],
    traits: Traits,
    vocab_size: int,
    seed: int = 42,
) -> Learned:
    """Return the table that says of texts what a model says of them at full depth.

    Args:
        tokens: of `HELD_OUT` texts or more, in a random order.
        logits: (texts, labels) of full depth.
        traits: of a model that gives one label or several.
        vocab_size: token ids are below it.
        seed: of the order in which texts are learned.
    """
    num_labels, num_held_out = len(traits.labels), len(tokens) // HELD_OUT
    buckets = num_buckets(vocab_size, num_labels)
    bags = _Bags([ngram_rows(each.input_ids, vocab_size, buckets) for each in tokens])
    weight = torch.zeros(len(bags.used), num_labels, requires_grad=True)
    bias = torch.zeros(num_labels, requires_grad=True)
    optimizer = torch.optim.Adam([weight, bias], lr=LEARNING_RATE, fused=True)
    full, loss = torch.from_numpy(logits), LOSSES[traits.task].from_teacher
    for texts in _batches(len(tokens) - num_held_out, seed):
        own = full[texts + num_held_out]
        optimizer.zero_grad()
        torch.autograd.backward(loss(bags.said(texts + num_held_out, weight, bias), own, own))
        optimizer.step()
    rows = np.zeros((vocab_size + buckets, num_labels), np.float16)
    rows[bags.used] = weight.detach().numpy()
    with torch.no_grad():
        said = bags.said(torch.arange(num_held_out), weight, bias).numpy()
    judged = _judged(said, logits[:num_held_out], traits)
    return Learned(rows, buckets, tuple(bias.tolist()), *judged)


class _Bags:
    """The n-grams of texts.

    Attributes:
        used: the rows of the table that any text has; all others stay zero.
    """

    def __init__(self, ngrams: Sequence[NDArray[np.int64]]) -> None:
        self.used, places = np.unique(np.concatenate(ngrams), return_inverse=True)
        self._texts = torch.from_numpy(places).split([len(each) for each in ngrams])

    def said(self, texts: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return (texts, labels) logits."""
        own = [self._texts[text] for text in texts.tolist()]
        starts = torch.tensor([0, *map(len, own)]).cumsum(0)[:-1]
        return SCALE * embedding_bag(torch.cat(own), weight, starts, mode="mean") + bias


def _batches(num_texts: int, seed: int) -> Iterator[Tensor]:
    """Yield the texts of every step, counted from 0."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(min(MOST_PASSES, max(1, round(ROWS_SEEN / num_texts)))):
        yield from torch.randperm(num_texts, generator=generator).split(BATCH_SIZE)


def _judged(
    said: NDArray[np.float32], full: NDArray[np.float32], traits: Traits
) -> tuple[float, float]:
    """Return temperature and agreement on texts that did not teach."""
    two, num_tokens = Traits((1, 2), traits.labels, traits.task), np.ones(len(said), np.intp)
    both = Recorded(two, (1.0, 1.0), np.stack([said, full]), num_tokens=num_tokens)
    return fit_temperatures(both)[0], float(both.same()[0].mean())
