"""Why a row left the model."""

from enum import IntEnum


class Reason(IntEnum):
    """Why a row left, or that it stays."""

    STAYS = 0
    CONFIDENT = 1
    PATIENCE = 2
    LAYER = 3
    MAX_LAYER = 4
    FINAL = 5
    DEADLINE = 6
    VOTES = 7

    @property
    def label(self) -> str:
        """The reason's name in JSON and metrics."""
        return self.name.lower()
