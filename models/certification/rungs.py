"""The rungs of a ladder: the ends of what is certified, and even steps down to the fastest rule."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from models.certification.path_choice import Terms
from models.certification.replay import Replay
from models.certification.risk_control import num_certified
from serve.policy.ladder import OF_REFERENCE, Certificate, Loss, Rung
from serve.rules import NeverRule

# Steps of a quarter layer, but no more steps than this.
STEP_LAYERS, MAX_STEPS = 0.25, 16

# The index of full depth, before the rules of a path.
_NEVER = -1

# How many rules from the first on are certified, by loss and epsilon.
Ends: TypeAlias = Mapping[tuple[Loss, float], int]


class Certified(NamedTuple):
    """What certifying texts say of a path.

    Attributes:
        replay: of the path on these texts.
        terms: of the certificates.
        ends: how many rules, from the first on, are certified; -1 where not even full depth is,
            which is tested before them for a loss about a reference.
    """

    replay: Replay
    terms: Terms
    ends: Ends

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The losses that were measured."""
        return tuple(self.replay.losses.by_loss)


def certify(replay: Replay, terms: Terms) -> Certified:
    """Test the rules of a path on texts that did not choose it."""
    ends = {
        (loss, epsilon): _end(replay, loss, epsilon, terms.delta)
        for loss in replay.losses.by_loss
        for epsilon in terms.bounds(loss)
    }
    return Certified(replay, terms, ends)


def _end(replay: Replay, loss: Loss, epsilon: float, delta: float) -> int:
    risks, binary = replay.risks(loss), loss in replay.losses.binary
    num_rows = replay.exits.shape[1]
    if loss not in OF_REFERENCE:
        return num_certified(risks, num_rows, epsilon, delta, binary)
    risks = np.concatenate([[replay.at_full_depth(loss)], risks])
    return num_certified(risks, num_rows, epsilon, delta, binary) - 1


def rungs(certified: Certified) -> tuple[Rung, ...]:
    """Return the rungs from never to the fastest rule."""
    replay = certified.replay
    never = (*[0.0] * (len(replay.layers) - 1), 1.0)
    # The ends of scores would only make the ladder longer: no target asks for them. Those of a
    # reference do not change it, so that all other targets become what they are without it.
    ends = {end for (loss, _), end in certified.ends.items() if loss in ("disagreement", "metric")}
    wanted = {end - 1 for end in ends if end} | _steps(replay)
    # Of rules by which texts run equally many layers, the last is certified if any is.
    by_layers = {float(replay.mean_layers[index]): index for index in sorted(wanted)}
    by_layers.pop(float(replay.layers[-1]), None)
    first = Rung(
        rule=NeverRule(), exit_shares=never, disagreement=0, **_from_reference(certified, _NEVER)
    )
    return (first, *(_rung(certified, index) for index in by_layers.values()))


def _steps(replay: Replay) -> set[int]:
    """Return the last rule, and the loosest that is not below each of some even steps of layers."""
    layers = replay.mean_layers
    step = max(STEP_LAYERS, (replay.layers[-1] - layers[-1]) / MAX_STEPS)
    goals = np.arange(replay.layers[-1] - step, layers[-1], -step)
    return {len(layers) - 1, *(int(np.flatnonzero(layers <= goal)[0]) for goal in goals)}


def _rung(certified: Certified, index: int) -> Rung:
    replay = certified.replay
    exits = replay.exits[index]
    shares = np.bincount(exits, minlength=len(replay.layers)) / len(exits)
    own = [_certificate(certified, x, index) for x in certified.losses if x not in OF_REFERENCE]
    found = _from_reference(certified, index)
    found["certificates"] = (*filter(None, own), *found.get("certificates", ()))
    return Rung(
        rule=replay.path.rules[index],
        exit_shares=tuple(shares.tolist()),
        disagreement=float(replay.risks("disagreement")[index]),
        **found,
    )


def _from_reference(certified: Certified, index: int) -> dict[str, Any]:
    """Return what a rung says of a reference; nothing without one."""
    losses = [loss for loss in certified.losses if loss in OF_REFERENCE]
    if not losses:
        return {}
    found = [_certificate(certified, loss, index) for loss in losses]
    return {
        "reference_disagreement": _risk(certified.replay, "reference", index),
        "certificates": tuple(filter(None, found)),
    }


def _risk(replay: Replay, loss: Loss, index: int) -> float:
    if index == _NEVER:
        return replay.at_full_depth(loss)
    return float(replay.risks(loss)[index])


def _certificate(certified: Certified, loss: Loss, index: int) -> Certificate | None:
    """Return the certificate with the smallest epsilon that a rule has."""
    replay, terms = certified.replay, certified.terms
    for epsilon in terms.bounds(loss):
        if index < certified.ends[loss, epsilon]:
            return Certificate(
                loss=loss,
                epsilon=epsilon,
                delta=terms.delta,
                n=replay.exits.shape[1],
                observed=_risk(replay, loss, index),
            )
    return None
