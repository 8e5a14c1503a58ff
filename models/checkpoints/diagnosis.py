"""Warnings about a checkpoint, from measurements of its weights and its sample run."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from models.checkpoints.formats import LoadedCheckpoint
from models.checkpoints.sample_run import SampleRun
from models.encoders.first_layers import LAYER
from models.heads import AnyHead
from models.multi_exit import MultiExitModel

# Least agreement of two exits beyond chance (Cohen's kappa, at most 1).
_MIN_KAPPA = 0.1
# If one label has a larger share than this, agreement beyond chance cannot be measured. For
# example, a tagger that finds almost no entities in the samples answers O for nearly every token.
_MAX_SAME_LABEL = 0.95
# Logits that vary by less than this are counted as constant.
_MIN_SPREAD = 0.01
# Least share of layers that exits must save, at this agreement with the last exit's answers.
_MIN_SAVING, _MIN_AGREEMENT = 0.05, 0.95


def find_warnings(loaded: LoadedCheckpoint, samples: SampleRun) -> list[str]:
    """Return one sentence for each problem of the checkpoint."""
    found = [*_identical_layers(loaded.model), *_untrained_heads(loaded.model)]
    if loaded.info.exits.task == "regression" or len(loaded.model.exits) == 1:
        return found
    found += [*_constant_exits(loaded.model, samples), *_chance_agreement(loaded.model, samples)]
    if not found and loaded.info.exits.task == "single_label":
        found += _no_saving(loaded.model, samples)
    return found


def _identical_layers(model: MultiExitModel) -> Iterator[str]:
    if model.backbone.shared:
        return
    layers: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for name, value in model.encoder.state_dict().items():
        match = LAYER.search(name)
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


def _constant_exits(model: MultiExitModel, samples: SampleRun) -> Iterator[str]:
    spread = np.ptp(samples.logits, axis=1).max(axis=1)
    constant = [layer for layer, s in zip(model.exits, spread, strict=True) if s < _MIN_SPREAD]
    if constant:
        yield (
            f"exits {_listed(constant)} say nearly the same of every sample (logits vary by less "
            f"than {_MIN_SPREAD:g}): untrained, or collapsed in training"
        )


def _chance_agreement(model: MultiExitModel, samples: SampleRun) -> Iterator[str]:
    labels, last = samples.labels, samples.labels[-1]
    largest_share = np.bincount(last).max() / len(last)
    if largest_share > _MAX_SAME_LABEL:
        yield (
            f"the last exit gives {largest_share:.1%} of the samples the same label, so that "
            "nothing can be said of how exits agree; measure on data of the task with "
            "`offramp evaluate`"
        )
        return
    kappas = [_kappa(each, last) for each in labels[:-1]]
    by_chance = [x for x, k in zip(model.exits, kappas, strict=False) if k < _MIN_KAPPA]
    if by_chance:
        yield (
            f"exits {_listed(by_chance)} agree with the last one no more often than by chance on "
            f"{_describe_samples(samples)}: their heads may be untrained or of another model. "
            "Confirm with `offramp evaluate` on data of the task"
        )


def _kappa(one: np.ndarray, other: np.ndarray) -> float:
    """Return agreement beyond chance (Cohen 1960): 1 is perfect, 0 is chance."""
    agreed = float((one == other).mean())
    by_chance = sum(float((one == c).mean() * (other == c).mean()) for c in np.unique(other))
    return (agreed - by_chance) / (1 - by_chance) if by_chance < 1 else 1.0


def _no_saving(model: MultiExitModel, samples: SampleRun) -> Iterator[str]:
    saved = best_saving(model.exits, samples)
    if saved < _MIN_SAVING:
        yield (
            "early exits do not pay here: of all entropy thresholds that keep "
            f"{_MIN_AGREEMENT:.0%} of the last exit's answers, the best saves {saved:.1%} of the "
            f"layers on {_describe_samples(samples)}. "
            "Backbones distilled layer by layer (TinyBERT, MiniLM) are like that until they are "
            "trained with their exits: `offramp train --recipe joint`"
        )


def best_saving(exits: tuple[int, ...], samples: SampleRun) -> float:
    """Return the largest share of layers saved by an entropy threshold at `_MIN_AGREEMENT`."""
    depths, entropy, labels = np.array(exits), samples.entropy, samples.labels
    best = 0.0
    for threshold in np.unique(entropy[:-1]):
        confident = entropy <= threshold
        confident[-1] = True
        taken = confident.argmax(axis=0)
        answers = labels[taken, np.arange(labels.shape[1])]
        if (answers == labels[-1]).mean() >= _MIN_AGREEMENT:
            best = max(best, 1 - float(depths[taken].mean() / depths[-1]))
    return best


def _describe_samples(samples: SampleRun) -> str:
    kind = "built-in English sentences" if samples.of_texts else "rows of random ids"
    count = samples.logits.shape[1]
    return f"{count} answers to {kind}"


def _listed(layers: list[int]) -> str:
    return ", ".join(map(str, layers))
