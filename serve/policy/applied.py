"""A policy as one variant follows it: what every profile, and every target, has become."""

from functools import lru_cache
from typing import NamedTuple

from serve.errors import TargetOutOfReach
from serve.policy.document import DEFAULT, ExitChoice, Policy
from serve.policy.flag import problem_of_flag
from serve.policy.problems import blame, problem_of_rule, problem_of_target
from serve.policy.profile import NO_SETTINGS, RuleOrTarget, Settings
from serve.policy.resolution import Resolution, nearest, resolve
from serve.policy.served_ladder import ServedLadder
from serve.policy.target import Target, TargetChoice
from serve.rules import CompiledRule, ExitRule


class ChosenExit(NamedTuple):
    """What a request's choice has become.

    Attributes:
        rule: within the policy's limits, worked out for the variant.
        resolution: of the target that it came from; None where a rule was chosen.
        settings: what else the chosen profile says.
        problem: of the default or a profile: why it is not what it says; None if it is.
    """

    rule: CompiledRule
    resolution: Resolution | None = None
    settings: Settings = NO_SETTINGS
    problem: str | None = None


class AppliedPolicy:
    """A policy and what it means for one variant; immutable.

    Attributes:
        named: what the default and each profile have become. Where a target cannot be had on
            this machine, it is the nearest rung.
        has_flag: whether any profile has one.
    """

    def __init__(self, policy: Policy, ladder: ServedLadder) -> None:
        """Resolve a policy that `check_policy` accepts in some replica.

        Raises:
            InvalidRule: the model cannot follow a rule.
        """
        self._policy, self._ladder = policy, ladder
        self._rungs = ladder.rungs(policy.limits)
        self._asked = lru_cache(256)(self._resolve)
        self.named = {name: self._named(name, wish) for name, wish in policy.wishes.items()}
        self.has_flag = any(chosen.settings.flag for chosen in self.named.values())

    @property
    def problems(self) -> dict[str, str]:
        """What is wrong with the default and the profiles, by name."""
        return {name: chosen.problem for name, chosen in self.named.items() if chosen.problem}

    @property
    def unkept(self) -> list[str]:
        """Say which targets are not kept here, although another machine could keep them."""
        found = ((name, chosen.resolution) for name, chosen in self.named.items())
        return [f"{name}: {kept.problem}" for name, kept in found if kept and kept.problem]

    def exit_for(self, choice: ExitChoice | None, assigned: bool = False) -> ChosenExit:
        """Return the rule that a request gets, without a choice the default.

        Args:
            choice: of the request.
            assigned: whether the operator has chosen the profile for it; then the limits do not
                say whether it may be chosen.

        Raises:
            OfframpError: there is no such profile, the limits do not allow the choice, the model
                cannot follow the rule, or the target cannot be had.
        """
        if choice is None:
            return self.named[DEFAULT]
        if assigned and isinstance(choice, str) and choice in self._policy.profiles:
            return self.named[choice]
        wish = self._policy.wish_for(choice)
        if isinstance(choice, str):
            return self.named[choice]
        if isinstance(wish, TargetChoice):
            return self._asked(wish.target)
        return self._of_rule(wish)

    def _named(self, name: str, wish: RuleOrTarget) -> ChosenExit:
        settings = self._policy.settings_for(None if name == DEFAULT else name)
        limits, ladder = self._policy.limits, self._ladder
        if isinstance(wish, TargetChoice):
            found = nearest(wish.target, self._rungs)
            problem = problem_of_target(wish.target, found, limits, ladder)
            chosen = self._of_rung(found)
        else:
            chosen, problem = self._of_rule(wish), problem_of_rule(wish, limits, ladder)
        of_flag = problem_of_flag(settings.flag, ladder.traits) if settings.flag else None
        both = "; ".join(filter(None, (problem, of_flag)))
        return chosen._replace(settings=settings, problem=both or None)

    def _resolve(self, target: Target) -> ChosenExit:
        try:
            return self._of_rung(resolve(target, self._rungs))
        except TargetOutOfReach as error:
            raise _explained(f"exit.target: {error}", target, self._ladder) from None

    def _of_rule(self, rule: ExitRule) -> ChosenExit:
        return ChosenExit(self._ladder.compile(self._policy.limits.applied_to(rule)))

    def _of_rung(self, found: Resolution) -> ChosenExit:
        return ChosenExit(self._ladder.compile(found.rung.rule), found)


def check_policy(policy: Policy, ladder: ServedLadder) -> None:
    """Raise unless every rule can be followed, and every target can be had, as it is written.

    Raises:
        InvalidRule: it names the place.
    """
    policy.check(ladder.traits)
    rungs = ladder.rungs(policy.limits)
    for place, wish in policy.places.items():
        if isinstance(wish, TargetChoice):
            try:
                resolve(wish.target, rungs)
            except TargetOutOfReach as error:
                problem = f"{place}.target: {error}" + blame(wish.target, policy.limits, ladder)
                raise _explained(problem, wish.target, ladder) from None


def _explained(problem: str, target: Target, ladder: ServedLadder) -> TargetOutOfReach:
    """Return the error, with the reason if only certified rules would do and there are none."""
    missing = ladder.uncertified if target.needs_certificate else None
    return TargetOutOfReach(f"{problem}. {missing}" if missing else problem)
