"""What a request's choice of an exit has become."""

from typing import NamedTuple

from serve.policy.profile import NO_SETTINGS, Settings
from serve.policy.resolution import Resolution
from serve.rules import CompiledRule


class ChosenExit(NamedTuple):
    """What a request's choice has become.

    Attributes:
        rule: within the policy's limits, worked out for the variant.
        resolution: of the target that it came from; None where a rule was chosen.
        settings: what else the chosen profile says.
        problem: of the default or a profile: why it is not what it says; None if it is.
        movable: whether it came from a target that allows some label to differ, so that under
            overload a faster rung may take its place.
        moved: whether one has.
    """

    rule: CompiledRule
    resolution: Resolution | None = None
    settings: Settings = NO_SETTINGS
    problem: str | None = None
    movable: bool = False
    moved: bool = False
