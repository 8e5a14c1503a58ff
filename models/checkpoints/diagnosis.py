"""Warnings of exits and layers that cannot be what was trained.

The comparison with transformers looks at the last exit, and at what is computed alone.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.checkpoints.formats import LoadedCheckpoint
from models.checkpoints.sample_texts import SAMPLE_TEXTS
from models.encoders.first_layers import LAYER
from models.heads import AnyHead
from models.multi_exit import MultiExitModel
from serve.tokenization.tokenizer import Text, TextEncoder

# Least agreement of two exits beyond chance (Cohen's kappa, at most 1).
_MIN_KAPPA = 0.1


def sample_answers(loaded: LoadedCheckpoint, tokenizer: TextEncoder) -> NDArray[np.int64]:
    """Return (exits, samples): the answers of all exits to built-in sentences.

    A sample is a text, a token of a tagger, or a yes-or-no question of a multi-label classifier.
    """
    found = []
    for tokens in tokenizer.encode(list(map(Text, SAMPLE_TEXTS)), truncate=True):
        ids, types = torch.from_numpy(tokens.input_ids), torch.from_numpy(tokens.token_type_ids)
        with torch.inference_mode():
            exits = loaded.model(ids[None], torch.ones_like(ids)[None], types[None])
        logits = torch.cat(exits)  # (exits, labels) or (exits, tokens, labels)
        several = loaded.info.exits.task == "multi_label"
        answers = (logits > 0).long() if several else logits.argmax(-1)
        found.append(answers.reshape(len(exits), -1))
    return torch.cat(found, dim=1).numpy()


def find_warnings(loaded: LoadedCheckpoint, answers: NDArray[np.int64]) -> list[str]:
    """Return one sentence for each problem of the checkpoint.

    Args:
        loaded: the checkpoint.
        answers: (exits, samples).
    """
    model = loaded.model
    found = [*_identical_layers(model), *_untrained_heads(model)]
    if loaded.info.exits.task != "regression":
        found += _chance_agreement(model, answers)
    return found


def _identical_layers(model: MultiExitModel) -> Iterator[str]:
    if model.backbone.shared:
        return
    layers: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for name, value in model.encoder.state_dict().items():
        if match := LAYER.search(name):
            layers[int(match[1])][match[2]] = value
    first = layers.get(0, {})
    same = [i + 1 for i in sorted(layers) if i and _equal(first, layers[i])]
    if same:
        yield (
            f"layers 1, {_listed(same)} have identical weights: one layer may have been "
            "saved several times, as early versions of bert-squeeze did; train the model again"
        )


def _equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def _untrained_heads(model: MultiExitModel) -> Iterator[str]:
    """Find classifiers whose bias is exactly 0: it starts there, and training changes it."""
    untrained = [
        layer for i, layer in enumerate(model.exits) if _as_initialised(model, model.head(i))
    ]
    if untrained:
        yield (
            f"the heads at exits {_listed(untrained)} look untrained: their biases are exactly 0 "
            "and their weights spread as at initialisation; export without them (--exits) or "
            "train them"
        )


def _as_initialised(model: MultiExitModel, head: AnyHead) -> bool:
    bias, weight = head.classifier.bias, head.classifier.weight
    spread = getattr(model.config, "initializer_range", 0.02)
    return not bias.any() and abs(float(weight.detach().std()) / spread - 1) < 0.25


def _chance_agreement(model: MultiExitModel, answers: NDArray[np.int64]) -> Iterator[str]:
    kappas = [_kappa(each, answers[-1]) for each in answers[:-1]]
    by_chance = [x for x, k in zip(model.exits, kappas, strict=False) if k < _MIN_KAPPA]
    if by_chance:
        yield (
            f"exits {_listed(by_chance)} agree with the last one no more often than by chance on "
            f"{answers.shape[1]} answers to built-in English sentences: their heads may be "
            "untrained or of another model. Confirm with `offramp evaluate` on data of the task"
        )


def _kappa(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """Return agreement beyond chance (Cohen 1960): 1 is perfect, 0 is chance."""
    agreed = float((one == other).mean())
    by_chance = sum(float((one == c).mean() * (other == c).mean()) for c in np.unique(other))
    return (agreed - by_chance) / (1 - by_chance) if by_chance < 1 else 1.0


def _listed(layers: list[int]) -> str:
    return ", ".join(map(str, layers))
