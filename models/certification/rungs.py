"""The rungs of a ladder: the ends of what is certified, and even steps down to the fastest rule."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from models.certification.path_choice import Terms
from models.certification.replay import Replay
from models.certification.risk_control import num_certified
from serve.policy.ladder import Certificate, Loss, Rung
from serve.rules import NeverRule

# Steps of a quarter layer, but no more steps than this.
STEP_LAYERS, MAX_STEPS = 0.25, 16

# How many rules from the first on are certified, by loss and epsilon.
Ends: TypeAlias = Mapping[tuple[Loss, float], int]


class Certified(NamedTuple):
    """What certifying texts say of a path.

    Attributes:
        replay: of the path on these texts.
        terms: of the certificates.
        ends: how many rules, from the first on, are certified.
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
    losses, num_rows = replay.losses, replay.exits.shape[1]
    ends = {
        (loss, epsilon): num_certified(
            replay.risks(loss), num_rows, epsilon, terms.delta, loss in losses.binary
        )
        for loss in losses.by_loss
        for epsilon in terms.epsilons
    }
    return Certified(replay, terms, ends)


def rungs(certified: Certified) -> tuple[Rung, ...]:
    """Return the rungs from never to the fastest rule."""
    replay = certified.replay
    never = (*[0.0] * (len(replay.layers) - 1), 1.0)
    # The scores' own ends would only make the ladder longer: no target asks for them.
    ends = {end for (loss, _), end in certified.ends.items() if loss != "score"}
    wanted = {end - 1 for end in ends if end} | _steps(replay)
    # Of rules by which texts run equally many layers, the last is certified if any is.
    by_layers = {float(replay.mean_layers[index]): index for index in sorted(wanted)}
    by_layers.pop(float(replay.layers[-1]), None)
    first = Rung(rule=NeverRule(), exit_shares=never, disagreement=0)
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
    certificates = (_certificate(certified, loss, index) for loss in certified.losses)
    return Rung(
        rule=replay.path.rules[index],
        exit_shares=tuple(shares.tolist()),
        disagreement=float(replay.risks("disagreement")[index]),
        certificates=tuple(filter(None, certificates)),
    )


def _certificate(certified: Certified, loss: Loss, index: int) -> Certificate | None:
    """Return the certificate with the smallest epsilon that a rule has."""
    replay, terms = certified.replay, certified.terms
    for epsilon in terms.epsilons:
        if index < certified.ends[loss, epsilon]:
            return Certificate(
                loss=loss,
                epsilon=epsilon,
                delta=terms.delta,
                n=replay.exits.shape[1],
                observed=float(replay.risks(loss)[index]),
            )
    return None
