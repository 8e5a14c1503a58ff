"""A policy as one variant follows it: what every profile, and every target, has become."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from serve.errors import InvalidRule, TargetOutOfReach
from serve.policy.chosen_exit import ChosenExit
from serve.policy.document import DEFAULT, ExitChoice, Policy
from serve.policy.faster_rungs import FasterRungs, check_overload
from serve.policy.flag import AnyFlag, problem_of_flag, thresholds
from serve.policy.problems import blame, problem_of_rule, problem_of_target, why_full
from serve.policy.profile import RuleOrTarget
from serve.policy.resolution import Resolution, ServedRung, nearest, resolve
from serve.policy.served_ladder import ServedLadder
from serve.policy.target import Target, TargetChoice
from serve.rules import ExitRule

# The thresholds of a flag, by label.
_Bounds: TypeAlias = tuple[tuple[str, float], ...]


class AppliedPolicy:
    """A policy and what it means for one variant; immutable.

    Attributes:
        named: what the default and each profile have become. Where a target cannot be had on
            this machine, it is the nearest rung.
        has_flag: whether any profile has one.
        faster: where requests go while the queue is long; None where they stay as they are.
    """

    def __init__(self, policy: Policy, ladder: ServedLadder) -> None:
        """Resolve a policy that `check_policy` accepts in some replica.

        Raises:
            InvalidRule: the model cannot follow a rule.
        """
        self._policy, self._ladder = policy, ladder
        self._rungs = ladder.rungs(policy.limits)
        self._asked = lru_cache(256)(self._resolve)
        self._reflagged = lru_cache(256)(self._under_other_flag)
        wishes = policy.wishes
        self._deciding = {
            name: wish.target
            for name, wish in wishes.items()
            if isinstance(wish, TargetChoice) and wish.target.decides
        }
        self.named = {name: self._named(name, wish) for name, wish in wishes.items()}
        self.has_flag = any(chosen.settings.flag for chosen in self.named.values())
        self.faster: FasterRungs | None = None
        if policy.overload:
            self.faster = FasterRungs(policy, policy.overload, ladder, self.named.values())

    @property
    def problems(self) -> dict[str, str]:
        """What is wrong with the default and the profiles, by name."""
        return {name: chosen.problem for name, chosen in self.named.items() if chosen.problem}

    @property
    def unkept(self) -> list[str]:
        """Say which targets are not kept here, although another machine could keep them."""
        found = ((name, chosen.resolution) for name, chosen in self.named.items())
        return [f"{name}: {kept.problem}" for name, kept in found if kept and kept.problem]

    def exit_for(
        self, choice: ExitChoice | None, assigned: bool = False, flag: AnyFlag | None = None
    ) -> ChosenExit:
        """Return the rule that a request gets, without a choice the default.

        Args:
            choice: of the request.
            assigned: whether the operator has chosen the profile for it; then the limits do not
                say whether it may be chosen.
            flag: the request's own. A profile's target about decisions then holds for this flag,
                and where nothing is certified for it, every text runs in full.

        Raises:
            OfframpError: there is no such profile, the limits do not allow the choice, the model
                cannot follow the rule, or the target cannot be had.
        """
        if choice is None:
            return self._of_name(DEFAULT, flag)
        if assigned and isinstance(choice, str) and choice in self._policy.profiles:
            return self._of_name(choice, flag)
        wish = self._policy.wish_for(choice)
        if isinstance(choice, str):
            return self._of_name(choice, flag)
        if isinstance(wish, TargetChoice):
            decides = flag is not None and wish.target.decides
            return self._asked(wish.target, _bounds(flag) if flag and decides else None)
        return self._of_rule(wish)

    def _of_name(self, name: str, flag: AnyFlag | None) -> ChosenExit:
        if flag is None or name not in self._deciding:
            return self.named[name]
        return self._reflagged(name, _bounds(flag))

    def _named(self, name: str, wish: RuleOrTarget) -> ChosenExit:
        settings = self._policy.settings_for(None if name == DEFAULT else name)
        limits, ladder = self._policy.limits, self._ladder
        if isinstance(wish, TargetChoice):
            of_target = _ladder_for(wish.target, settings.flag, ladder, name)
            rungs = self._rungs if of_target is ladder else of_target.rungs(limits)
            found = nearest(wish.target, rungs)
            problem = problem_of_target(wish.target, found, limits, of_target)
            chosen = self._of_rung(wish.target, found, of_target)
        else:
            chosen, problem = self._of_rule(wish), problem_of_rule(wish, limits, ladder)
        of_flag = problem_of_flag(settings.flag, ladder.traits) if settings.flag else None
        both = "; ".join(filter(None, (problem, of_flag)))
        return chosen._replace(settings=settings, problem=both or None)

    def _resolve(self, target: Target, bounds: _Bounds | None) -> ChosenExit:
        ladder = _ladder_for(target, dict(bounds) if bounds else None, self._ladder, "exit")
        if target.decides and ladder.uncertified:
            raise TargetOutOfReach(f"exit.target: {ladder.uncertified}")
        rungs = self._rungs if ladder is self._ladder else ladder.rungs(self._policy.limits)
        try:
            found = resolve(target, rungs)
        except TargetOutOfReach as error:
            raise _explained(f"exit.target: {error}", target, ladder) from None
        return self._of_rung(target, found, ladder)

    def _under_other_flag(self, name: str, bounds: _Bounds) -> ChosenExit:
        target, ladder = self._deciding[name], self._ladder.deciding(dict(bounds))
        found = nearest(target, ladder.rungs(self._policy.limits))
        chosen = self._of_rung(target, found, ladder)
        return chosen._replace(settings=self.named[name].settings)

    def _of_rule(self, rule: ExitRule) -> ChosenExit:
        return ChosenExit(self._ladder.compile(self._policy.limits.applied_to(rule)))

    def _of_rung(self, target: Target, found: Resolution, ladder: ServedLadder) -> ChosenExit:
        said = replace(found, note=why_full(target, found, ladder))
        movable = not (target.lossless or target.decides)
        return ChosenExit(self._ladder.compile(found.rung.rule), said, movable=movable)


def check_policy(policy: Policy, ladder: ServedLadder) -> None:
    """Raise unless every rule can be followed, and every target can be had, as it is written.

    Raises:
        InvalidRule: it names the place.
    """
    policy.check(ladder.traits)
    check_overload(policy, ladder)
    rungs = ladder.rungs(policy.limits)
    for place, wish in policy.places.items():
        if isinstance(wish, TargetChoice) and not wish.target.decides:
            _check_target(place, wish.target, policy, ladder, rungs)
    for name, wish in policy.wishes.items():
        if isinstance(wish, TargetChoice) and wish.target.decides:
            own = None if name == DEFAULT else name
            place = f"profiles.{name}" if own else DEFAULT
            of_flag = _ladder_for(wish.target, policy.settings_for(own).flag, ladder, place)
            rungs = of_flag.rungs(policy.limits)
            _check_target(place, wish.target, policy, of_flag, rungs)
    if policy.overload and policy.limits.overrides != "any":
        _check_movable(AppliedPolicy(policy, ladder))


def _check_movable(applied: AppliedPolicy) -> None:
    if applied.faster and not applied.faster.moves_named:
        raise InvalidRule(
            "overload: no request could move: a rule has no place on the ladder, a flag is kept, "
            "and targets move only to what loses more than they do and no more than "
            "overload.target and their degrade; write the default as a stricter target, such as "
            '{"target": {"max_disagreement": 0.01}} below 0.03, or leave overload out'
        )


def _check_target(
    place: str, target: Target, policy: Policy, ladder: ServedLadder, rungs: Sequence[ServedRung]
) -> None:
    try:
        resolve(target, rungs)
    except TargetOutOfReach as error:
        problem = f"{place}.target: {error}" + blame(target, policy.limits, ladder)
        raise _explained(problem, target, ladder) from None


def _ladder_for(
    target: Target, flag: AnyFlag | None, ladder: ServedLadder, place: str
) -> ServedLadder:
    """Return the rungs that a target resolves to."""
    if not target.decides:
        return ladder
    if flag is None:
        raise InvalidRule(
            f"{place}.target: max_missed and max_false_alarms are about the decisions of a flag, "
            'and there is none: add one such as "flag": {"LABEL": 0.8}, to the profile or to the '
            "request"
        )
    return ladder.deciding(flag)


def _bounds(flag: AnyFlag) -> _Bounds:
    return tuple(thresholds(flag).items())


def _explained(problem: str, target: Target, ladder: ServedLadder) -> TargetOutOfReach:
    """Return the error, with the reason if only certified rules would do and there are none."""
    missing = ladder.lacks(target) if target.needs_certificate or target.of else None
    return TargetOutOfReach(f"{problem}. {missing}" if missing else problem)
