"""Certifying a path of rules, and the rungs of a ladder that come of it."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from models.quality.paths import EPSILONS, Tried
from models.quality.risk_control import num_certified
from serve.policy.ladder import OF_REFERENCE, Certificate, Loss, Repeats, Rung
from serve.rules import NeverRule

# From a reference: full depth has used up a part, which is seldom nothing and may be much.
REFERENCE_EPSILONS = (
    *(0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3),
)
# Steps of a quarter layer, but no more steps than this.
STEP_LAYERS, MAX_STEPS = 0.25, 16

# The index of full depth, before the rules of a path.
_NEVER = -1

# How many rules from the first on are certified, by loss and epsilon.
Ends: TypeAlias = Mapping[tuple[Loss, float], int]


class Certified(NamedTuple):
    """What certifying texts say of a path.

    Attributes:
        tried: the path on these texts.
        delta: probability that a bound does not hold.
        ends: how many rules, from the first on, are certified; -1 where not even full depth is,
            which is tested before them for a loss about a reference.
        repeats: what texts with equal tokens are.
    """

    tried: Tried
    delta: float
    ends: Ends
    repeats: Repeats = "count"

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The losses that were measured."""
        return tuple(self.tried.losses.by_loss)

    @property
    def num_texts(self) -> int:
        """How many texts certify."""
        return self.tried.exits.shape[1]

    def risk(self, loss: Loss, index: int) -> float:
        """Return the mean loss by a rule; -1 is full depth."""
        if index == _NEVER:
            return self.tried.at_full_depth(loss)
        return float(self.tried.risks(loss)[index])

    def certificate(self, loss: Loss, index: int) -> Certificate | None:
        """Return the certificate with the smallest epsilon that a rule has."""
        for epsilon in bounds_of(loss):
            if index < self.ends[loss, epsilon]:
                return Certificate(
                    loss=loss,
                    epsilon=epsilon,
                    delta=self.delta,
                    n=self.num_texts,
                    observed=self.risk(loss, index),
                    repeats=self.repeats,
                )
        return None


def bounds_of(loss: Loss) -> tuple[float, ...]:
    """Return the bounds of a loss that are tested, ascending."""
    return REFERENCE_EPSILONS if loss in OF_REFERENCE else EPSILONS


def certify(tried: Tried, delta: float, repeats: Repeats = "count") -> Certified:
    """Test the rules of a path on texts that did not choose it."""
    ends = {
        (loss, epsilon): _end(tried, loss, epsilon, delta)
        for loss in tried.losses.by_loss
        for epsilon in bounds_of(loss)
    }
    return Certified(tried, delta, ends, repeats)


def _end(tried: Tried, loss: Loss, epsilon: float, delta: float) -> int:
    risks, binary = tried.risks(loss), loss in tried.losses.binary
    num_rows = tried.exits.shape[1]
    if loss not in OF_REFERENCE:
        return num_certified(risks, num_rows, epsilon, delta, binary)
    risks = np.concatenate([[tried.at_full_depth(loss)], risks])
    return num_certified(risks, num_rows, epsilon, delta, binary) - 1


def rungs(certified: Certified) -> tuple[Rung, ...]:
    """Return the rungs of a ladder, from never to the fastest rule.

    They are the ends of what is certified, and even steps down to the fastest rule.
    """
    tried = certified.tried
    never = (*[0.0] * (len(tried.traits.layers) - 1), 1.0)
    # The ends of scores would only make the ladder longer: no target asks for them.
    asked = ("disagreement", "metric", "reference")
    ends = {end for (loss, _), end in certified.ends.items() if loss in asked}
    wanted = {end - 1 for end in ends if end > 0} | _steps(tried)
    # Of rules by which texts run equally many layers, the last is certified if any is.
    mean_layers = tried.mean_layers.tolist()
    by_layers = {mean_layers[index]: index for index in sorted(wanted)}
    first = Rung(
        rule=NeverRule(), exit_shares=never, disagreement=0, **_from_reference(certified, _NEVER)
    )
    found, fewest = [first], float(tried.depth)
    for layers, index in sorted(by_layers.items(), key=lambda each: each[1]):
        if layers < fewest:  # a small model in front may take more than it saves
            fewest = layers
            found.append(_rung(certified, index))
    return tuple(found)


def with_rungs_beside(certified: Certified, other: Certified) -> tuple[Rung, ...]:
    """Return the rungs of two paths, from safe to fast: of pairs, and of the exits alone.

    Either path may be wrong with probability delta. So that to have both is no second chance, a
    rung of the other is left out where it is faster than those that promise as much.
    """
    traits, own = certified.tried.traits, rungs(certified)

    def mean_layers(rung: Rung) -> float:
        return float(np.dot(traits.layers_taken(rung.rule), rung.exit_shares))

    def promised(certificate: Certificate) -> float:
        kept = (mean_layers(rung) for rung in own if _promises(rung, certificate))
        return min(kept, default=float(traits.exits[-1]))

    known = {rung.rule for rung in own}
    fresh = [
        rung
        for rung in rungs(other)
        if rung.rule not in known
        and all(promised(c) <= mean_layers(rung) for c in rung.certificates)
    ]
    return tuple(sorted([*own, *fresh], key=lambda rung: -mean_layers(rung)))


def _promises(rung: Rung, certificate: Certificate) -> bool:
    own = rung.certificate(certificate.loss)
    return own is not None and own.epsilon <= certificate.epsilon


def _steps(tried: Tried) -> set[int]:
    """Return the last rule, and the loosest that is not below each of some even steps of layers."""
    layers = tried.mean_layers
    step = max(STEP_LAYERS, (tried.depth - layers[-1]) / MAX_STEPS)
    goals = np.arange(tried.depth - step, layers[-1], -step)
    return {len(layers) - 1, *(int(np.flatnonzero(layers <= goal)[0]) for goal in goals)}


def _rung(certified: Certified, index: int) -> Rung:
    tried = certified.tried
    exits = tried.exits[index]
    shares = np.bincount(exits, minlength=len(tried.traits.layers)) / len(exits)
    own = [certified.certificate(x, index) for x in certified.losses if x not in OF_REFERENCE]
    found = _from_reference(certified, index)
    found["certificates"] = (*filter(None, own), *found.get("certificates", ()))
    return Rung(
        rule=tried.path.rules[index],
        exit_shares=tuple(shares.tolist()),
        disagreement=certified.risk("disagreement", index),
        **found,
    )


def _from_reference(certified: Certified, index: int) -> dict[str, Any]:
    """Return what a rung says of a reference; nothing without one."""
    losses = [loss for loss in certified.losses if loss in OF_REFERENCE]
    if not losses:
        return {}
    found = [certified.certificate(loss, index) for loss in losses]
    return {
        "reference_disagreement": certified.risk("reference", index),
        "certificates": tuple(filter(None, found)),
    }
