"""The profiles of a policy as the server would follow them: targets become rungs."""

from typing import NamedTuple

import numpy as np

from models.evaluation.costs import MS
from models.evaluation.observation import Observation
from serve.policy.ladder import Certificate
from serve.policy.profile import RuleOrTarget
from serve.policy.resolution import ServedRung, nearest
from serve.policy.served_ladder import ServedLadder
from serve.policy.target import TargetChoice
from serve.rules import CompiledRule, ExitRule


class ServedProfile(NamedTuple):
    """A profile.

    Attributes:
        rule: within the policy's limits.
        certificates: of the rung that a target has become.
    """

    rule: ExitRule
    certificates: tuple[Certificate, ...] = ()


def served_profiles(observed: Observation) -> dict[str, ServedProfile]:
    """Return the profiles by name; where times are not known, those that are rules."""
    subject = observed.subject
    timed = MS in observed.costs
    rungs = _rungs(observed) if timed else ()
    return {
        name: _served(observed, wish, rungs)
        for name, wish in subject.profiles.items()
        if timed or not isinstance(wish, TargetChoice)
    }


def _rungs(observed: Observation) -> tuple[ServedRung, ...]:
    def exit_times(rule: CompiledRule) -> list[float]:
        times, num_rows = observed.costs[MS], observed.num_rows
        exits = range(len(observed.traits.exits))
        each = (times.of(np.full(num_rows, i, np.intp), rule.first_heard) for i in exits)
        return [float(found.mean()) for found in each]

    subject = observed.subject
    ladder = ServedLadder(observed.traits, observed.temperatures, exit_times, subject.ladder)
    return ladder.rungs(subject.limits)


def _served(
    observed: Observation, wish: RuleOrTarget, rungs: tuple[ServedRung, ...]
) -> ServedProfile:
    if isinstance(wish, TargetChoice):
        rung = nearest(wish.target, rungs).rung
        return ServedProfile(rung.rule, rung.certificates)
    return ServedProfile(observed.subject.limits.applied_to(wish))
