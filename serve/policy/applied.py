"""A policy as one variant follows it: what every profile, and every target, has become."""

from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from serve.errors import InvalidRule, TargetOutOfReach
from serve.policy.document import DEFAULT, ExitChoice, Policy
from serve.policy.faster_rungs import FasterRungs
from serve.policy.flag import AnyFlag, problem_of_flag, thresholds
from serve.policy.problems import problem_of_rule, problem_of_target, why_full
from serve.policy.profile import RuleOrTarget
from serve.policy.resolution import ChosenExit, Resolution, nearest
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
        reads_all: whether any profile has a flag or windows, so that it may read whole texts.
        faster: where requests go while the queue is long; None where they stay as they are.
        unkept: which targets cannot be had here, although another machine could have them.
    """

    def __init__(self, policy: Policy, ladder: ServedLadder) -> None:
        """Resolve a policy that `checked` accepts in some replica.

        Raises:
            InvalidRule: the model cannot follow a rule.
        """
        self._policy, self._ladder = policy, ladder
        self._rungs = ladder.rungs(policy.limits)
        self._flagging = self._under_a_flag()
        self._asked = lru_cache(256)(self._of_own_target)
        self._reflagged = lru_cache(256)(self._under_other_flag)
        self._wishes = policy.wishes
        self.unkept: dict[str, TargetOutOfReach] = {}
        self.named = {name: self._named(name, wish) for name, wish in self._wishes.items()}
        for name in self._flagging.named if self._flagging else ():
            if self.named[name].settings.flag:
                self._take_flagging(name)
        settings = [chosen.settings for chosen in self.named.values()]
        self.has_flag = any(each.flag for each in settings)
        self.reads_all = self.has_flag or any(each.windows is not None for each in settings)
        self.faster: FasterRungs | None = None
        if policy.overload:
            self.faster = FasterRungs(policy, policy.overload, ladder, self.named.values())

    @property
    def problems(self) -> dict[str, str]:
        """What is wrong with the default and the profiles, by name."""
        return {name: chosen.problem for name, chosen in self.named.items() if chosen.problem}

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
        if flag is not None and self._flagging:
            return self._flagging.exit_for(choice, assigned, flag)
        if choice is None:
            return self._of_name(DEFAULT, flag)
        if assigned and isinstance(choice, str) and choice in self._policy.profiles:
            return self._of_name(choice, flag)
        wish = self._policy.wish_for(choice)
        if isinstance(choice, str):
            return self._of_name(choice, flag)
        if isinstance(wish, TargetChoice):
            return self._asked(wish.target, _bounds(flag) if wish.target.decides else None)
        return self._of_rule(wish)

    def _under_a_flag(self) -> "AppliedPolicy | None":
        """Return what the policy means where a flag looks; None where it means the same there."""
        limits = self._policy.limits
        if not self._ladder.traits.num_before or limits.flagging() == limits:
            return None
        flagging = self._policy.model_copy(update={"limits": limits.flagging()})
        return AppliedPolicy(flagging, self._ladder)

    def _take_flagging(self, name: str) -> None:
        """Let a profile with a flag of its own be what it is under a flag."""
        assert self._flagging
        self.named[name] = self._flagging.named[name]
        self.unkept.pop(name, None)
        if name in self._flagging.unkept:
            self.unkept[name] = self._flagging.unkept[name]

    def _of_name(self, name: str, flag: AnyFlag | None) -> ChosenExit:
        wish = self._wishes[name]
        if flag is None or not (isinstance(wish, TargetChoice) and wish.target.decides):
            return self.named[name]
        return self._reflagged(name, wish.target, _bounds(flag))

    def _named(self, name: str, wish: RuleOrTarget) -> ChosenExit:
        settings = self._policy.settings_for(None if name == DEFAULT else name)
        limits, place = self._policy.limits, self._policy.place_of(name)
        if isinstance(wish, TargetChoice):
            found, ladder = self._nearest(wish.target, settings.flag, place)
            problem = problem_of_target(wish.target, found, limits, ladder)
            if found.problem:
                self.unkept[name] = _out_of_reach(f"{place}.target: {problem}", wish.target, ladder)
            chosen = self._of_rung(wish.target, found)
        else:
            chosen, problem = self._of_rule(wish), problem_of_rule(wish, limits, self._ladder)
        of_flag = problem_of_flag(settings.flag, self._ladder.traits) if settings.flag else None
        both = "; ".join(filter(None, (problem, of_flag)))
        return chosen._replace(settings=settings, problem=both or None)

    def _of_own_target(self, target: Target, bounds: _Bounds | None) -> ChosenExit:
        found, ladder = self._nearest(target, dict(bounds) if bounds else None, "exit")
        if target.decides and ladder.uncertified:
            raise TargetOutOfReach(f"exit.target: {ladder.uncertified}")
        if found.problem:
            raise _out_of_reach(f"exit.target: {found.problem}", target, ladder)
        return self._of_rung(target, found)

    def _under_other_flag(self, name: str, target: Target, bounds: _Bounds) -> ChosenExit:
        found, _ = self._nearest(target, dict(bounds), name)
        return self._of_rung(target, found)._replace(settings=self.named[name].settings)

    def _nearest(
        self, target: Target, flag: AnyFlag | None, place: str
    ) -> tuple[Resolution, ServedLadder]:
        """Return the rung for a target, and the ladder that it is of."""
        ladder, rungs = self._ladder, self._rungs
        if target.decides:
            if flag is None:
                raise InvalidRule(
                    f"{place}.target: max_missed and max_false_alarms are about the decisions of a "
                    'flag, and there is none: add one such as "flag": {"LABEL": 0.8}, to the '
                    "profile or to the request"
                )
            ladder = ladder.deciding(flag)
            rungs = ladder.rungs(self._policy.limits)
        found = nearest(target, rungs)
        return replace(found, note=why_full(target, found, ladder)), ladder

    def _of_rule(self, rule: ExitRule) -> ChosenExit:
        return ChosenExit(self._ladder.compile(self._policy.limits.applied_to(rule)))

    def _of_rung(self, target: Target, found: Resolution) -> ChosenExit:
        movable = not (target.lossless or target.decides)
        return ChosenExit(self._ladder.compile(found.rung.rule), found, movable=movable)


def checked(policy: Policy, ladder: ServedLadder) -> AppliedPolicy:
    """Return what a policy means, if every rule can be followed and every target can be had.

    Raises:
        InvalidRule: it names the place.
    """
    policy.check(ladder.traits)
    applied = AppliedPolicy(policy, ladder)
    for error in applied.unkept.values():
        raise error
    if applied.faster and applied.faster.problem:
        raise InvalidRule(applied.faster.problem)
    return applied


def _bounds(flag: AnyFlag | None) -> _Bounds | None:
    return tuple(thresholds(flag).items()) if flag else None


def _out_of_reach(problem: str, target: Target, ladder: ServedLadder) -> TargetOutOfReach:
    """Return the error, with the reason if only certified rules would do and there are none."""
    missing = ladder.lacks(target) if target.needs_certificate or target.of else None
    return TargetOutOfReach(f"{problem}. {missing}" if missing else problem)
