"""The policy document: the default exit rule, named profiles, and limits on requests."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PositiveInt,
    StringConstraints,
    Tag,
    model_validator,
)

from serve.errors import InvalidRule, OverrideForbidden, UnknownProfile
from serve.policy.target import TargetChoice
from serve.rules import ExitRule, LayerRule, NeverRule, Rule, check_rule
from serve.rules.traits import Traits

ProfileName = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9_.-]{1,64}$")]

# Metrics use this name for the rule of requests without `exit`; no profile may have it.
DEFAULT = "default"

RULE_TAG, PROFILE_TAG, TARGET_TAG = "<rule>", "<profile>", "<target>"


def _kind_of_choice(value: Any) -> str | None:
    if isinstance(value, str):
        return PROFILE_TAG
    return RULE_TAG if isinstance(value, dict | Rule) else None


def _kind_of_wish(value: Any) -> str | None:
    if isinstance(value, TargetChoice) or (isinstance(value, dict) and "target" in value):
        return TARGET_TAG
    return RULE_TAG if isinstance(value, dict | Rule) else None


def _kind_of_default(value: Any) -> str | None:
    return PROFILE_TAG if isinstance(value, str) else _kind_of_wish(value)


# A rule, or a target that resolves to one.
RuleOrTarget = Annotated[
    Annotated[ExitRule, Tag(RULE_TAG)] | Annotated[TargetChoice, Tag(TARGET_TAG)],
    Discriminator(
        _kind_of_wish,
        custom_error_type="rule_or_target",
        custom_error_message="must be a JSON object: a rule such as "
        '{"rule": "entropy", "threshold": 0.2}, or {"target": {"max_disagreement": 0.01}}',
    ),
]

ExitChoice = Annotated[
    Annotated[ExitRule, Tag(RULE_TAG)] | Annotated[ProfileName, Tag(PROFILE_TAG)],
    Discriminator(
        _kind_of_choice,
        custom_error_type="exit_choice",
        custom_error_message="must be a rule such as "
        '{"rule": "entropy", "threshold": 0.2} or the name of a profile',
    ),
]

# What requests without `exit` get.
DefaultChoice = Annotated[
    Annotated[ExitRule, Tag(RULE_TAG)]
    | Annotated[TargetChoice, Tag(TARGET_TAG)]
    | Annotated[ProfileName, Tag(PROFILE_TAG)],
    Discriminator(
        _kind_of_default,
        custom_error_type="default_choice",
        custom_error_message='must be a rule such as {"rule": "entropy", "threshold": 0.2}, '
        '{"target": {"max_disagreement": 0.01}}, or the name of a profile',
    ),
]


class Limits(BaseModel):
    """What requests may choose, and the layers at which they may leave.

    Attributes:
        overrides: `any` rule or profile; only `profiles`; or `none`, the default rule for all.
        min_layer: the earliest layer at which a request leaves, whatever its rule says.
        max_layer: the last layer that a request runs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    overrides: Literal["any", "profiles", "none"] = "any"
    min_layer: PositiveInt | None = None
    max_layer: PositiveInt | None = None

    @model_validator(mode="after")
    def _check_bounds(self) -> "Limits":
        if self.min_layer and self.max_layer and self.min_layer > self.max_layer:
            raise ValueError(f"min_layer {self.min_layer} is beyond max_layer {self.max_layer}")
        return self


class Policy(BaseModel):
    """Default rule, named profiles and limits; applied whole or not at all.

    Attributes:
        default: the rule or target for requests without `exit`, or the name of a profile.
        profiles: rules and targets that a request may choose by name. A target is the rule never
            until it is resolved.
        limits: what a request may choose.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    default: DefaultChoice = Field(default_factory=NeverRule)
    profiles: dict[ProfileName, RuleOrTarget] = Field(default_factory=dict, max_length=64)
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _check_names(self) -> "Policy":
        if DEFAULT in self.profiles:
            raise ValueError(
                f"profiles: {DEFAULT!r} is the name of the rule for requests without exit; "
                "give the profile another one"
            )
        if isinstance(self.default, str) and self.default not in self.profiles:
            raise ValueError(_no_profile(self.default, self.profiles))
        return self

    def rule_for(self, choice: ExitChoice | None) -> ExitRule:
        """Return the rule that a request gets, limits applied.

        Args:
            choice: a rule, the name of a profile, or None for the default.

        Raises:
            UnknownProfile: there is no such profile.
            OverrideForbidden: the limits do not allow the choice.
        """
        if choice is not None:
            self._check_override(choice)
        wish = self.default if choice is None else choice
        rule = self._profile(wish) if isinstance(wish, str) else wish
        return self._limited(NeverRule() if isinstance(rule, TargetChoice) else rule)

    def check(self, traits: Traits) -> None:
        """Raise `InvalidRule`, naming the place, if the model cannot follow the policy.

        Args:
            traits: of the model.
        """
        bounds = NeverRule(min_layer=self.limits.min_layer, max_layer=self.limits.max_layer)
        places: dict[str, RuleOrTarget] = {"limits": bounds}
        if not isinstance(self.default, str):
            places["default"] = self.default
        places |= {f"profiles.{name}": rule for name, rule in self.profiles.items()}
        for place, rule in places.items():
            if isinstance(rule, TargetChoice):
                continue
            try:
                check_rule(rule, traits)
                check_rule(self._limited(rule), traits)
            except (InvalidRule, OverrideForbidden) as error:
                raise InvalidRule(f"{place}: {error}") from None

    def _check_override(self, choice: ExitChoice) -> None:
        if self.limits.overrides == "none":
            raise OverrideForbidden("exit: the live policy allows no override; leave it out")
        if self.limits.overrides == "profiles" and not isinstance(choice, str):
            raise OverrideForbidden(
                f"exit: the live policy allows only profiles: {_listed(self.profiles)}"
            )

    def _profile(self, name: str) -> RuleOrTarget:
        try:
            return self.profiles[name]
        except KeyError:
            raise UnknownProfile(f"exit: {_no_profile(name, self.profiles)}") from None

    def _limited(self, rule: ExitRule) -> ExitRule:
        """Return the rule within the limits; the same object if it is within them already."""
        low = max(rule.min_layer or 1, self.limits.min_layer or 1)
        bounds = [b for b in (rule.max_layer, self.limits.max_layer) if b is not None]
        high = min(bounds, default=None)
        if isinstance(rule, LayerRule) and not low <= rule.layer <= (high or rule.layer):
            raise OverrideForbidden(
                f"layer {rule.layer} is outside the policy's limits: {_allowed(low, high)}"
            )
        if high is not None and low > high:
            raise OverrideForbidden(
                f"the rule leaves nothing between min_layer {low} and max_layer {high} "
                "of the policy's limits"
            )
        min_layer = low if low > 1 else None
        if (rule.min_layer, rule.max_layer) == (min_layer, high):
            return rule
        return rule.model_copy(update={"min_layer": min_layer, "max_layer": high})


def _allowed(low: int, high: int | None) -> str:
    return f"layer {low} or later" if high is None else f"layers {low} to {high}"


def _no_profile(name: str, profiles: dict[str, RuleOrTarget]) -> str:
    return f"no profile {name!r}; the policy has {_listed(profiles)}"


def _listed(profiles: dict[str, RuleOrTarget]) -> str:
    return ", ".join(sorted(profiles)) or "none"
