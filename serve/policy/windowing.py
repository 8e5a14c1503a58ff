"""How texts that are longer than a model takes are cut into windows, and become one answer."""

from typing import Literal

from pydantic import Field

from serve.errors import InvalidRule
from serve.rules.traits import Traits
from serve.validation import RequestModel


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
