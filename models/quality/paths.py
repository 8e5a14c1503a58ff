"""Paths of rules from strict to loose, of which one is certified, and the choice of that one."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.quality.losses import Losses, Scale, losses_of
from models.quality.pairs import Judge, pairs
from models.quality.recorded import Recorded
from models.quality.risk_control import num_certified
from models.quality.temperatures import fit_temperatures
from serve.policy.ladder import Loss
from serve.rules import (
    ConfidenceRule,
    EntropyRule,
    LayerRule,
    LearnedRule,
    NeverRule,
    PatienceRule,
    Rule,
)
from serve.rules.rule import num_choices
from serve.rules.traits import Traits

NUM_STEPS = 200
# At the first threshold of a path hardly any text leaves. Most tokens of a text are surely outside
# any entity, so that the mean of their entropies is small.
FIRST_ENTROPY, FIRST_MEAN_ENTROPY = 1e-3, 1e-5
FIRST_DOUBT = 1e-6  # 1 - confidence
FIRST_ERROR = 1e-3  # that a head predicts for itself
# Of a regression, as shares of the spread of full depth's values.
TOLERANCES = 0.005, 4.0

EPSILONS = (0.005, 0.01, 0.02, 0.03, 0.05)
# A path that is less simple must save so many layers more.
SIMPLER_LAYERS = 0.02
# Every so many rules of a path are tried.
STRIDE = 4

# What a rule may look at before the first layer.
BEFORE: Final = ("table", "small")

_Reduce: TypeAlias = Literal["mean", "max"] | None


class RulePath(NamedTuple):
    """Rules in the order in which they are tested.

    Attributes:
        rules: from strict to loose: no text leaves later by a rule than by the one before.
        temperatures: one per exit, at which these rules read confidence.
    """

    rules: tuple[Rule, ...]
    temperatures: tuple[float, ...]


@dataclass(frozen=True)
class Tried:
    """What the rules of a path make of texts.

    Attributes:
        path: the rules.
        exits: (rules, rows) where each text leaves, as a place in `Traits.layers`.
        losses: of the texts.
        traits: the model.
    """

    path: RulePath
    exits: NDArray[np.intp]
    losses: Losses
    traits: Traits

    @classmethod
    def of(cls, path: RulePath, recorded: Recorded, losses: Losses) -> "Tried":
        """Try every rule of a path on texts."""
        recorded = replace(recorded, temperatures=path.temperatures)
        exits = np.stack([recorded.taken(rule).exits for rule in path.rules])
        return cls(path, exits, losses, recorded.traits)

    def of_texts(self, rows: NDArray[np.intp]) -> "Tried":
        """Return what the rules make of some of the texts."""
        by_loss = {loss: each[:, rows] for loss, each in self.losses.by_loss.items()}
        losses = replace(self.losses, by_loss=by_loss)
        return replace(self, exits=self.exits[:, rows], losses=losses)

    @property
    def depth(self) -> int:
        """The model's layers."""
        return self.traits.exits[-1]

    @property
    def layers(self) -> NDArray[np.float64]:
        """(rules, rows) layers that each text takes, see `Traits.layers_taken`."""
        taken = np.array([self.traits.layers_taken(rule) for rule in self.path.rules], np.float64)
        return np.take_along_axis(taken, self.exits, axis=1)

    @property
    def mean_layers(self) -> NDArray[np.float64]:
        """(rules,) layers that texts take in the mean."""
        mean: NDArray[np.float64] = self.layers.mean(axis=1)
        return mean

    def at_full_depth(self, loss: Loss) -> float:
        """Return the mean loss of full depth, which is 0 but for a reference's."""
        return float(self.losses.by_loss[loss][-1].mean())

    def risks(self, loss: Loss) -> NDArray[np.float64]:
        """Return (rules,) the texts' mean loss."""
        mean: NDArray[np.float64] = self.of_each(loss).mean(axis=1)
        return mean

    def of_each(self, loss: Loss) -> NDArray[np.float64]:
        """Return (rules, rows) every text's loss."""
        taken: NDArray[np.float64] = self.losses.by_loss[loss][
            self.exits, np.arange(self.exits.shape[1])
        ]
        return taken


def find_path(tuning: Recorded, scale: Scale | None, num_certifying: int, delta: float) -> RulePath:
    """Return the path to certify, with temperatures fitted on the texts that tune.

    Args:
        tuning: texts that will not certify.
        scale: of a regression.
        num_certifying: how many texts will certify.
        delta: probability that a bound does not hold.
    """
    paths = candidate_paths(tuning.traits, fit_temperatures(tuning), scale.spread if scale else 0.0)
    losses = losses_of(tuning, scale)
    best = choose_path(paths, tuning, losses, num_certifying, delta)
    if not tuning.traits.num_before:
        return best
    # A rule with `min_layer` looks at nothing before the first layer.
    looks = [path for path in paths if not any(rule.min_layer for rule in path.rules)]
    exits = choose_path(looks, tuning, losses, num_certifying, delta)
    tried = Tried.of(exits, tuning, losses)
    paired = [with_first(tried, tuning, losses, fields) for fields in _firsts(tuning.traits)]
    return choose_path([best, *paired], tuning, losses, num_certifying, delta)


def choose_path(
    paths: Sequence[RulePath], tuning: Recorded, losses: Losses, num_certifying: int, delta: float
) -> RulePath:
    """Return the path by which texts are expected to run the fewest layers; the simplest is first.

    That is the mean over the epsilons of what the fastest certified rule would run. Certificates
    about disagreement are expected as if the certifying texts had the risks of the tuning texts.
    """
    best, fewest = paths[0], np.inf
    for path in paths:
        tried = Tried.of(RulePath(path.rules[::STRIDE], path.temperatures), tuning, losses)
        layers = [tuning.traits.exits[-1], *tried.mean_layers.tolist()]
        risks = tried.risks("disagreement")
        ends = [num_certified(risks, num_certifying, e, delta, binary=True) for e in EPSILONS]
        expected = float(np.mean([layers[end] for end in ends]))
        if expected < fewest - SIMPLER_LAYERS:
            best, fewest = path, expected
    return best


def of_exits(path: RulePath) -> RulePath | None:
    """Return the rules of a path that looks before the first layer, for those who may not look.

    None of others.
    """
    if not any(rule.looks_before for rule in path.rules):
        return None
    rules = (rule.model_copy(update=dict.fromkeys(BEFORE)) for rule in path.rules)
    return path._replace(rules=tuple(dict.fromkeys(rules)))


def with_first(
    exits: Tried, tuning: Recorded, losses: Losses, fields: Sequence[dict[str, Any]]
) -> RulePath:
    """Return a path of pairs: of rules, and of thresholds for what is before the first layer.

    Args:
        exits: rules without `min_layer`, tried on these texts.
        tuning: of a model with such a place before the first layer.
        losses: of these texts.
        fields: what is before as fields of a rule, from strict to loose.
    """
    rules = [NeverRule(), *(NeverRule.model_validate(each) for each in fields)]
    compiled = replace(tuning, temperatures=exits.path.temperatures)
    places = np.stack([compiled.left_before(rule) for rule in rules])
    taken = np.array([tuning.traits.layers_taken(rule) for rule in rules], np.float64)
    # What goes on has taken what full depth takes more than its layers.
    going_on = taken[:, -1:] - exits.depth
    leaves, each = places >= 0, np.arange(tuning.num_rows)
    found = pairs(
        Judge(
            losses.by_loss["disagreement"][places, each],
            np.where(leaves, np.take_along_axis(taken, places, axis=1), going_on),
            leaves,
        ),
        Judge(exits.of_each("disagreement"), exits.layers),
    )
    return exits.path._replace(
        rules=tuple(
            exits.path.rules[rule].model_copy(
                update={name: getattr(rules[place], name) for name in BEFORE}
            )
            for place, rule in found
        )
    )


def _firsts(traits: Traits) -> Iterator[list[dict[str, Any]]]:
    """Yield what may be looked at before the first layer, as fields of rules, strict to loose.

    Of a small model that is one of its exits, or all of them up to one: several are more chances
    to be wrong, and what they do not answer has run them for nothing.
    """
    thresholds = _confidences(num_choices(traits))
    if traits.table_temperature is not None:
        yield [{"table": each} for each in thresholds]
    for layer in traits.small.exits if traits.small else ():
        for first in {layer, None}:
            bounds = {"min_layer": first, "max_layer": layer}
            yield [{"small": {"threshold": each, **bounds}} for each in thresholds]


class _Family(NamedTuple):
    """Rules of one kind.

    Attributes:
        rules: from strict to loose.
        first_exit: where the loosest lets texts leave, counted from 0.
        reads_confidence: whether the rules depend on temperatures.
    """

    rules: list[Rule]
    first_exit: int = 0
    reads_confidence: bool = False


def candidate_paths(
    traits: Traits, temperatures: tuple[float, ...], spread: float
) -> list[RulePath]:
    """Return a path of every family and every exit to begin at, the simplest first.

    Args:
        traits: of the model, with the active exits.
        temperatures: fitted, one per exit.
        spread: of a regression, the standard deviation of full depth's values.
    """
    ones = (1.0,) * len(traits.exits)
    if len(ones) == 1:  # all that leaves early leaves before the first layer
        return [RulePath((NeverRule(),), ones)]
    paths = [
        RulePath(
            _rules(family, at, traits.exits), temperatures if family.reads_confidence else ones
        )
        for family in _families(traits, spread)
        for at in range(len(traits.exits) - 1)
    ]
    return list(dict.fromkeys(paths))


def _rules(family: _Family, at: int, exits: tuple[int, ...]) -> tuple[Rule, ...]:
    """Return rules that let texts leave from an exit on; then all texts, at earlier exits."""
    rules, first = family.rules, max(at, family.first_exit)
    if at:
        rules = [rule.model_copy(update={"min_layer": exits[at]}) for rule in rules]
    return (*rules, *(LayerRule(layer=layer) for layer in reversed(exits[:first])))


def _families(traits: Traits, spread: float) -> list[_Family]:
    if traits.task == "regression":
        families = _of_values(len(traits.exits), spread)
    else:
        families = _of_probabilities(traits)
    if traits.learned:
        errors = [min(error, 1.0) for error in _up(FIRST_ERROR, 1.0)]
        families.append(_Family([LearnedRule(threshold=error) for error in errors]))
    return families


def _of_probabilities(traits: Traits) -> list[_Family]:
    # Of several labels or tokens the least sure one decides.
    reduce: _Reduce = None if traits.task == "single_label" else "max"
    options = num_choices(traits)
    largest = math.log(options)
    families = [_Family(_entropies(_up(FIRST_ENTROPY, largest), reduce))]
    if traits.task != "single_label":
        families.append(_Family(_entropies(_up(FIRST_MEAN_ENTROPY, largest), "mean")))
    sure: list[Rule] = [ConfidenceRule(threshold=p, reduce=reduce) for p in _confidences(options)]
    return [*families, _Family(sure, reads_confidence=True)]


def _of_values(num_exits: int, spread: float) -> list[_Family]:
    """Return fixed layers, and values that agree for as many exits as may come before the last."""
    tolerances = _up(TOLERANCES[0] * spread, TOLERANCES[1] * spread) if spread else []
    families = [_Family([], num_exits - 1)]
    for patience in range(1, num_exits - 1):
        rules: list[Rule] = [PatienceRule(patience=patience, tolerance=t) for t in tolerances]
        families.append(_Family(rules, patience))
    return families


def _entropies(thresholds: Iterable[float], reduce: _Reduce) -> list[Rule]:
    return [EntropyRule(threshold=t, reduce=reduce) for t in thresholds]


def _up(first: float, last: float) -> list[float]:
    """Return rising numbers whose ratios are equal; the last is a little beyond its bound."""
    steps = [_rounded(number) for number in np.geomspace(first, last, NUM_STEPS).tolist()]
    return list(dict.fromkeys([*steps[:-1], _rounded(1.001 * last)]))


def _confidences(num_options: int) -> list[float]:
    """Return falling probabilities, down to that of equal options; the doubts rise as in `_up`."""
    doubts = np.geomspace(FIRST_DOUBT, 1 - 1 / num_options, NUM_STEPS)
    steps = [round(1 - _rounded(doubt), 8) for doubt in doubts.tolist()[:-1]]
    return list(dict.fromkeys([*steps, _rounded(0.999 / num_options)]))


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")
