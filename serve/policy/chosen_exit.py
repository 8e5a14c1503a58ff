"""What a request's choice of an exit has become."""

from typing import NamedTuple

from serve.policy.profile import NO_SETTINGS, Settings
from serve.policy.resolution import Resolution
from serve.rules import CompiledRule


class ChosenExit(NamedTuple):
    """What a request's choice has become.

    Attributes:
        rule: the rule within the policy's limits, worked out for the variant.
        resolution: what the chosen target has become; None where a rule was chosen.
        settings: what else the chosen profile says.
        problem: why the default or a profile is not what it says; None if it is.
        movable: whether the target allows some label to differ, so that under overload a faster
            rung may take the rule's place.
        moved: whether a faster rung has taken the rule's place.
    """

    rule: CompiledRule
    resolution: Resolution | None = None
    settings: Settings = NO_SETTINGS
    problem: str | None = None
    movable: bool = False
    moved: bool = False
