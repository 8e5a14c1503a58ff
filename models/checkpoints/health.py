"""Warnings about a checkpoint, each from something that was measured in it."""

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from models.checkpoints.formats import Loaded
from models.checkpoints.trial import Trial
from models.heads import AnyHead
from models.multi_exit import MultiExitModel

_LAYER = re.compile(r"(?:^|\.)layers?\.(\d+)\.(.+)$")
# How much better than chance two exits must agree, of 1 (Cohen's kappa).
_LEAST_KAPPA = 0.1
# Where more of the answers are one label, exits that agree well do so hardly beyond chance: a
# tagger that finds next to nothing in the samples says O of nearly every token.
_MOST_ALIKE = 0.95
# Logits that vary by less than this say the same of every text.
_LEAST_SPREAD = 0.01
# What saving is worth a model with exits, and how much of the last exit's answers it may cost.
_LEAST_SAVING, _AGREED = 0.05, 0.95


def warnings(loaded: Loaded, trial: Trial) -> list[str]:
    """Return what is wrong with the checkpoint, in sentences."""
    found = [*_identical_layers(loaded.model), *_untrained(loaded.model)]
    if loaded.found.exits.task == "regression" or len(loaded.model.exits) == 1:
        return found
    said = [*_silent_exits(loaded.model, trial), *_strangers(loaded.model, trial)]
    if not said and not found and loaded.found.exits.task == "single_label":
        said = list(_no_benefit(loaded.model, trial))
    return [*found, *said]


def _identical_layers(model: MultiExitModel) -> Iterator[str]:
    if model.backbone.shared:
        return
    layers: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for name, value in model.encoder.state_dict().items():
        match = _LAYER.search(name)
        if match:
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


def _untrained(model: MultiExitModel) -> Iterator[str]:
    """Find classifiers whose bias never moved from 0, where training starts and never returns."""
    fresh = [layer for i, layer in enumerate(model.exits) if _as_initialised(model, model.head(i))]
    if fresh:
        yield (
            f"the heads at exits {_listed(fresh)} look untrained: their biases are exactly 0 and "
            "their weights spread as at initialisation; export without them (--exits) or train them"
        )


def _as_initialised(model: MultiExitModel, head: AnyHead) -> bool:
    bias, weight = head.classifier.bias, head.classifier.weight
    spread = getattr(model.config, "initializer_range", 0.02)
    return not bias.any() and abs(float(weight.detach().std()) / spread - 1) < 0.25


def _silent_exits(model: MultiExitModel, trial: Trial) -> Iterator[str]:
    spread = np.ptp(trial.logits, axis=1).max(axis=1)
    silent = [layer for layer, s in zip(model.exits, spread, strict=True) if s < _LEAST_SPREAD]
    if silent:
        yield (
            f"exits {_listed(silent)} say nearly the same of every sample (logits vary by less "
            f"than {_LEAST_SPREAD:g}): untrained, or collapsed in training"
        )


def _strangers(model: MultiExitModel, trial: Trial) -> Iterator[str]:
    labels, last = trial.labels, trial.labels[-1]
    alike = np.bincount(last).max() / len(last)
    if alike > _MOST_ALIKE:
        yield (
            f"the last exit gives {alike:.1%} of the samples the same label, so that nothing "
            "can be said of how exits agree; measure on data of the task with `offramp evaluate`"
        )
        return
    kappas = [_kappa(each, last) for each in labels[:-1]]
    strange = [x for x, k in zip(model.exits, kappas, strict=False) if k < _LEAST_KAPPA]
    if strange:
        yield (
            f"exits {_listed(strange)} agree with the last one no more often than by chance on "
            f"{_samples(trial)}: their heads may be untrained or of another model. Confirm with "
            "`offramp evaluate` on data of the task"
        )


def _kappa(one: np.ndarray, other: np.ndarray) -> float:
    """Return agreement beyond chance: 0 for none, 1 for perfect (Cohen 1960)."""
    agreed = float((one == other).mean())
    by_chance = sum(float((one == c).mean() * (other == c).mean()) for c in np.unique(other))
    return (agreed - by_chance) / (1 - by_chance) if by_chance < 1 else 1.0


def _no_benefit(model: MultiExitModel, trial: Trial) -> Iterator[str]:
    saved = best_saving(model.exits, trial)
    if saved < _LEAST_SAVING:
        yield (
            f"early exits do not pay here: of all entropy thresholds that keep {_AGREED:.0%} of "
            f"the last exit's answers, the best saves {saved:.1%} of the layers on "
            f"{_samples(trial)}. "
            "Backbones distilled layer by layer (TinyBERT, MiniLM) are like that until they are "
            "trained with their exits: `offramp train --recipe joint`"
        )


def best_saving(exits: tuple[int, ...], trial: Trial) -> float:
    """Return the largest share of layers that one entropy threshold saves within `_AGREED`."""
    depths, entropy, labels = np.array(exits), trial.entropy, trial.labels
    best = 0.0
    for threshold in np.unique(entropy[:-1]):
        confident = entropy <= threshold
        confident[-1] = True
        taken = confident.argmax(axis=0)
        answers = labels[taken, np.arange(labels.shape[1])]
        if (answers == labels[-1]).mean() >= _AGREED:
            best = max(best, 1 - float(depths[taken].mean() / depths[-1]))
    return best


def _samples(trial: Trial) -> str:
    kind = "built-in English sentences" if trial.of_texts else "rows of random ids"
    # Of a tagger there is one per token, of several labels one per label.
    count = trial.logits.shape[1]
    return f"{count} answers to {kind}"


def _listed(layers: list[int]) -> str:
    return ", ".join(map(str, layers))
