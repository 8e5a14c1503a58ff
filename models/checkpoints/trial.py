"""What the exits say of a few sentences."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from models.checkpoints.formats import Loaded
from models.checkpoints.sentences import SENTENCES
from serve.rules.traits import Task

_RANDOM_ROWS, _RANDOM_TOKENS = 32, 12


class Trial(NamedTuple):
    """All exits on all samples: texts; tokens where these are labelled; of multi-label, questions.

    Attributes:
        logits: (exits, samples, labels).
        of_texts: whether the samples are sentences; the vocabulary of a toy may know no word.
    """

    logits: NDArray[np.float32]
    of_texts: bool

    @property
    def labels(self) -> NDArray[np.int64]:
        """(exits, samples) which label each exit gives."""
        return self.logits.argmax(axis=2)

    @property
    def agreement(self) -> NDArray[np.float64]:
        """(exits,) share of the samples with the last exit's label."""
        return (self.labels == self.labels[-1]).mean(axis=1)

    @property
    def entropy(self) -> NDArray[np.float64]:
        """(exits, samples) in nats."""
        logits = self.logits.astype(np.float64)
        shifted = logits - logits.max(axis=2, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(axis=2, keepdims=True))
        return -(np.exp(log_p) * log_p).sum(axis=2)


def try_out(loaded: Loaded) -> Trial:
    """Run built-in sentences, or random ids where the vocabulary does not know their words."""
    rows, of_texts = _sentences(loaded), True
    if len({tuple(row) for row, _ in rows}) < len(rows) / 2:
        rows, of_texts = _random_rows(loaded), False
    said = []
    for ids, types in rows:
        tokens = torch.tensor([ids])
        with torch.inference_mode():
            exits = loaded.model(tokens, torch.ones_like(tokens), torch.tensor([types]))
        said.append(_samples(torch.stack(exits), loaded.found.exits.task))
    return Trial(torch.cat(said, dim=1).numpy(), of_texts)


def _samples(logits: Tensor, task: Task) -> Tensor:
    """Return (exits, samples, labels) of one text's logits; (exits, 1, ...)."""
    if task == "multi_label":  # each label is a question of its own: no or yes
        return torch.stack([torch.zeros_like(logits), logits], dim=-1).flatten(1, -2)
    return logits.flatten(1, -2)


def _sentences(loaded: Loaded) -> list[tuple[list[int], list[int]]]:
    tokenizer = Tokenizer.from_str(loaded.tokenizer)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    limit = loaded.model.backbone.max_tokens
    encoded = tokenizer.encode_batch(list(SENTENCES))
    return [(each.ids[:limit], each.type_ids[:limit]) for each in encoded]


def _random_rows(loaded: Loaded) -> list[tuple[list[int], list[int]]]:
    generator = np.random.default_rng(0)
    tokens = min(_RANDOM_TOKENS, loaded.model.backbone.max_tokens)
    shape = (_RANDOM_ROWS, tokens)
    rows = generator.integers(0, loaded.model.config.vocab_size, shape).tolist()
    return [(row, [0] * tokens) for row in rows]
