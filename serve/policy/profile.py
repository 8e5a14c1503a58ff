"""A profile: when texts may leave, what flags them, and how long ones are cut into windows."""

from typing import Annotated, Any, Literal

from pydantic import (
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from serve.errors import InvalidRule
from serve.policy.flag import Flag, check_flag
from serve.policy.target import Degrade, TargetChoice, bounds_in
from serve.rules import ExitRule, Rule
from serve.rules.traits import Traits
from serve.validation import RequestModel, unsaid


class Windows(RequestModel):
    """Windows of as many tokens as the model takes, each overlapping the one before it."""

    stride: int = Field(
        default=0,
        ge=0,
        lt=2**31,
        description="Tokens that a window shares with the one before it, at most half of what the "
        "model takes.",
    )
    combine: Literal["max", "mean", "any"] = Field(
        default="max",
        description="How windows become one answer. `max`: each label's largest probability; "
        "`mean`: its mean; `any`, with `flag`: the first window to finish that is flagged answers "
        "for the text, and the others are cancelled; if none is flagged, as `max`.",
    )


def check_windows(windows: Windows, flagging: bool, traits: Traits) -> None:
    """Raise unless a model's answers can be combined like this, with a flag or without.

    Raises:
        InvalidRule: the message names the field.
    """
    if windows.combine == "any" and not flagging:
        raise InvalidRule(
            "windows.combine: any needs a flag, which says when a window ends the work on its "
            'text; add one such as "flag": {"LABEL": 0.8}, or use max'
        )
    if windows.combine == "mean" and traits.task == "token":
        raise InvalidRule("windows.combine: entities have no mean; use max or any")
    most = traits.max_tokens // 2 if traits.max_tokens else windows.stride
    if windows.stride > most:
        raise InvalidRule(
            f"windows.stride: {windows.stride} tokens are too many; this model takes "
            f"{traits.max_tokens}, and windows may share {most}"
        )


RULE_TAG, TARGET_TAG, PROFILE_OBJECT_TAG = "<rule>", "<target>", "<settings>"
EXAMPLES = (
    'a target such as {"target": {"max_disagreement": 0.01}}, '
    'a rule such as {"rule": "entropy", "threshold": 0.2}'
)


def kind_of_wish(value: Any) -> str | None:
    """Return the tag of a rule or a target; None for anything else."""
    if isinstance(value, TargetChoice):
        return TARGET_TAG
    if isinstance(value, dict) and (
        "target" in value or ("rule" not in value and bounds_in(value))
    ):
        return TARGET_TAG
    return RULE_TAG if isinstance(value, dict | Rule) else None


# A rule, or a target that resolves to one.
RuleOrTarget = Annotated[
    Annotated[ExitRule, Tag(RULE_TAG)] | Annotated[TargetChoice, Tag(TARGET_TAG)],
    Discriminator(
        kind_of_wish,
        custom_error_type="exit_wish",
        custom_error_message=f"must be a JSON object: {EXAMPLES}",
    ),
]


# What a special token such as `[SEP]` in a text is: characters like others, or the token.
SpecialTokens = Literal["text", "ids"]
# Names of fields, or types of parts, of calls to a language model.
Unchecked = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=64)]],
    Field(max_length=32, fail_fast=True),
]


class Settings(RequestModel):
    """A profile as an object: when texts leave, what flags them, how long ones are cut.

    Attributes:
        exit: a rule or a target; None for the policy's default.
        flag: the probability from which on a label flags a text.
        windows: how long texts are cut.
        unchecked: what a gateway's call may hold that is not looked at.
        special_tokens: whether special tokens in texts are text; None for `text` where a guardrail
            asks, and `ids` elsewhere.
        degrade: how far requests move under overload, if not as far as the policy lets them.
    """

    exit: RuleOrTarget | None = None
    flag: Flag | None = None
    windows: Windows | None = None
    unchecked: Unchecked | None = unsaid()
    special_tokens: SpecialTokens | None = unsaid()
    degrade: Degrade | None = unsaid()

    @model_validator(mode="before")
    @classmethod
    def _check_place(cls, value: Any) -> Any:
        if isinstance(value, dict) and (outside := value.keys() & {"rule", "target"}):
            name = min(outside)
            raise ValueError(f'the {name} of a profile with other settings goes into "exit"')
        if isinstance(value, dict) and (wanted := bounds_in(value)):
            raise ValueError(f'a target is missing: say {{"exit": {{"target": {wanted}}}}}')
        return value

    def check(self, traits: Traits) -> None:
        """Raise `InvalidRule` if the model cannot flag by these labels, or be windowed so."""
        if self.flag is not None:
            check_flag(self.flag, traits)
        if self.windows is not None:
            check_windows(self.windows, self.flag is not None, traits)


NO_SETTINGS = Settings()


def _kind_of_profile(value: Any) -> str | None:
    own = isinstance(value, dict) and not value.keys().isdisjoint(Settings.model_fields)
    return PROFILE_OBJECT_TAG if own or isinstance(value, Settings) else kind_of_wish(value)


ProfileEntry = Annotated[
    Annotated[ExitRule, Tag(RULE_TAG)]
    | Annotated[TargetChoice, Tag(TARGET_TAG)]
    | Annotated[Settings, Tag(PROFILE_OBJECT_TAG)],
    Discriminator(
        _kind_of_profile,
        custom_error_type="profile",
        custom_error_message=f"must be a JSON object: {EXAMPLES}, or an object with exit, flag, "
        "windows, unchecked, special_tokens or degrade",
    ),
]
