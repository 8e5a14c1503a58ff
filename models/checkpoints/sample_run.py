"""Running a checkpoint's exits on a few built-in texts."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from models.checkpoints.formats import LoadedCheckpoint
from models.checkpoints.sample_texts import SAMPLE_TEXTS
from serve.rules.traits import Task

_RANDOM_ROWS, _RANDOM_TOKENS = 32, 12


class SampleRun(NamedTuple):
    """The logits of all exits on all samples.

    A sample is a text, a token of a tagger, or a yes-or-no question of a multi-label classifier.

    Attributes:
        logits: (exits, samples, labels).
        of_texts: whether the samples are sentences, not random ids.
    """

    logits: NDArray[np.float32]
    of_texts: bool

    @property
    def labels(self) -> NDArray[np.int64]:
        """(exits, samples) label ids."""
        return self.logits.argmax(axis=2)

    @property
    def agreement(self) -> NDArray[np.float64]:
        """(exits,) share of samples with the same label as at the last exit."""
        return (self.labels == self.labels[-1]).mean(axis=1)

    @property
    def entropy(self) -> NDArray[np.float64]:
        """(exits, samples) in nats."""
        logits = self.logits.astype(np.float64)
        shifted = logits - logits.max(axis=2, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(axis=2, keepdims=True))
        return -(np.exp(log_p) * log_p).sum(axis=2)


def run_samples(loaded: LoadedCheckpoint) -> SampleRun:
    """Run the built-in sentences, or random ids if the vocabulary knows too few of their words."""
    rows, of_texts = _sentences(loaded), True
    if len({tuple(row) for row, _ in rows}) < len(rows) / 2:
        rows, of_texts = _random_rows(loaded), False
    logits = []
    for ids, types in rows:
        tokens = torch.tensor([ids])
        with torch.inference_mode():
            exits = loaded.model(tokens, torch.ones_like(tokens), torch.tensor([types]))
        logits.append(_samples(torch.stack(exits), loaded.info.exits.task))
    return SampleRun(torch.cat(logits, dim=1).numpy(), of_texts)


def _samples(logits: Tensor, task: Task) -> Tensor:
    """Return (exits, samples, labels) for one text's logits of shape (exits, 1, ...)."""
    if task == "multi_label":  # each label is a yes-or-no question
        return torch.stack([torch.zeros_like(logits), logits], dim=-1).flatten(1, -2)
    return logits.flatten(1, -2)


def _sentences(loaded: LoadedCheckpoint) -> list[tuple[list[int], list[int]]]:
    tokenizer = Tokenizer.from_str(loaded.tokenizer)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    limit = loaded.model.backbone.max_tokens
    encoded = tokenizer.encode_batch(list(SAMPLE_TEXTS))
    return [(each.ids[:limit], each.type_ids[:limit]) for each in encoded]


def _random_rows(loaded: LoadedCheckpoint) -> list[tuple[list[int], list[int]]]:
    generator = np.random.default_rng(0)
    tokens = min(_RANDOM_TOKENS, loaded.model.backbone.max_tokens)
    shape = (_RANDOM_ROWS, tokens)
    rows = generator.integers(0, loaded.model.config.vocab_size, shape).tolist()
    return [(row, [0] * tokens) for row in rows]
