"""The rungs of one variant as this server runs it: with the times of this machine."""

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from itertools import chain
from typing import TypeAlias

from serve.errors import InvalidRule, OverrideForbidden
from serve.policy.flag import AnyFlag, thresholds
from serve.policy.ladder import Ladder, Loss, Rung
from serve.policy.limits import Limits
from serve.policy.resolution import ServedRung
from serve.policy.target import Target
from serve.rules import CompiledRule, DecisionRule, ExitRule, LayerRule, NeverRule, compile_rule
from serve.rules.traits import Traits

# Tokens of the lone text whose time is measured where no calibration says how long texts are.
TYPICAL_TOKENS = 32

# From a rule to (layers,) milliseconds that a lone text takes to leave at each of `Traits.layers`.
ExitTimes: TypeAlias = Callable[[CompiledRule], Sequence[float]]


class ServedLadder:
    """The rungs that targets resolve to.

    Attributes:
        certified: the ladder of just this variant; None if it has none. The rungs are then never,
            and to leave at each exit.
        uncertified: a sentence that says why nothing is certified, and what helps.
        traits: the model as its rules see it.
        exit_times_ms: function from a rule to (layers,) the milliseconds of a lone text that
            leaves at each of `Traits.layers`.
        noise: share by which these times may be off.
    """

    def __init__(
        self,
        traits: Traits,
        temperatures: tuple[float, ...],
        exit_times: ExitTimes,
        certified: Ladder | None,
        uncertified: str | None = None,
        noise: float = 0.0,
    ) -> None:
        """Take what is known of the variant.

        Raises:
            InvalidRule: the model cannot follow a rule of the ladder.
        """
        self.traits, self.certified, self.uncertified = traits, certified, uncertified
        self._temperatures, self.exit_times_ms, self.noise = temperatures, exit_times, noise
        self._rungs = certified.rungs if certified else _of_exits(traits)
        decisions = certified.decisions if certified else ()
        for rung in chain(self._rungs, *(each.rungs for each in decisions)):
            self.compile(rung.rule)
        self._full_depth_ms = exit_times(self.compile(NeverRule()))[-1]

    @property
    def mean_tokens(self) -> float:
        """The length of the text whose times are expected."""
        return self.certified.mean_tokens if self.certified else TYPICAL_TOKENS

    def compile(self, rule: ExitRule) -> CompiledRule:
        """Return a rule, worked out for the variant.

        Raises:
            InvalidRule: the model cannot follow it.
        """
        return compile_rule(rule, self.traits, self._temperatures)

    def deciding(self, flag: AnyFlag) -> "ServedLadder":
        """Return the rungs that targets about a flag's decisions resolve to.

        They are certified for these very thresholds; for others there is full depth alone.
        """
        found, bounds = copy(self), thresholds(flag)
        own = self.certified and self.certified.decided(bounds)
        found._rungs = own.rungs if own else self._rungs[:1]
        found.uncertified = None if own else self._undecided(bounds)
        return found

    def _undecided(self, flag: dict[str, float]) -> str:
        known = self.certified.decisions if self.certified else ()
        options = " ".join(f"--flag '{label}={bound:g}'" for label, bound in flag.items())
        others = f", only of {' and '.join(_written(each.flag) for each in known)}"
        return (
            f"No decision of the flag {_written(flag)} is certified{others if known else ''}: run "
            f"`offramp calibrate BUNDLE --data FILE {options}`"
        )

    def lacks(self, target: Target) -> str | None:
        """Return why nothing is certified of what a target is about, and what helps."""
        if target.of and self.certified and not self.certified.reference:
            return (
                "Nothing is certified from a reference: run `offramp calibrate` with --reference "
                "and the folder of your own classifier"
            )
        return self.uncertified

    def rungs(self, limits: Limits) -> tuple[ServedRung, ...]:
        """Return the rungs that a policy's limits allow, from safe to fast.

        A certificate holds for its very rule. Where the limits change when texts may leave, the
        rung has none, and its layers are an estimate: texts leave as near as they may to where
        they left without limits.
        """
        served = (self._served(rung, limits) for rung in self._rungs)
        return tuple(rung for rung in served if rung is not None)

    def _served(self, rung: Rung, limits: Limits) -> ServedRung | None:
        try:
            rule = self.compile(limits.applied_to(rung.rule))
        except (OverrideForbidden, InvalidRule):
            return None
        free, last = self.compile(rung.rule), len(self.traits.exits) - 1
        before = self.traits.num_before
        first = 0 if rule.rule.looks_before else rule.first + before
        shares = _moved_into(rung.exit_shares, first, rule.last + before)
        never = isinstance(rule.rule, NeverRule) and not rule.rule.looks_before
        full_depth = never and rule.last == last
        same = full_depth or _when(rule) == _when(free)
        measured = same and (full_depth or self.certified is not None)
        expected_ms = _mean(shares, self.exit_times_ms(rule))
        return ServedRung(
            rule=rule.rule,
            full_depth=full_depth,
            expected_layers=round(_mean(shares, self.traits.layers_taken(rule.rule)), 4),
            expected_ms=expected_ms,
            speedup=self._full_depth_ms / expected_ms,
            noise=0.0 if full_depth else self.noise,
            disagreement=rung.disagreement if measured else None,
            reference_disagreement=rung.reference_disagreement if same else None,
            certificates=rung.certificates if same else (),
            certain=_certain(rule.rule) if rule.last == last else frozenset(),
            exit_shares=tuple(shares),
        )


def _certain(rule: ExitRule) -> frozenset[Loss]:
    """Return what a certified rule about decisions cannot lose: a side it leaves to full depth."""
    if not isinstance(rule, DecisionRule):
        return frozenset()
    sides: dict[Loss, object] = {"missed": rule.leave_below, "false_alarms": rule.leave_above}
    return frozenset(loss for loss, side in sides.items() if side is None)


def _written(flag: Mapping[str, float]) -> str:
    return json.dumps(flag)


def _when(rule: CompiledRule) -> tuple[object, ...]:
    """Return the bounds on when a text may leave."""
    return rule.first, rule.last, rule.table, rule.small


def _of_exits(traits: Traits) -> tuple[Rung, ...]:
    """Return what can be had without calibration: full depth, then each exit, deepest first.

    How often their answers differ is not known.
    """
    rules = [NeverRule(), *(LayerRule(layer=layer) for layer in reversed(traits.exits[:-1]))]
    return tuple(
        Rung(rule=rule, exit_shares=tuple(float(e == left) for e in traits.layers), disagreement=0)
        for rule, left in zip(rules, reversed(traits.exits), strict=True)
    )


def _moved_into(shares: Sequence[float], first: int, last: int) -> list[float]:
    """Return shares of exits, with those before the first and beyond the last added to them."""
    moved = [0.0] * len(shares)
    for index, share in enumerate(shares):
        moved[min(max(index, first), last)] += share
    return moved


def _mean(shares: Sequence[float], values: Sequence[float]) -> float:
    return sum(share * value for share, value in zip(shares, values, strict=True))
