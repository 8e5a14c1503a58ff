"""Why a checkpoint cannot be used."""

from serve.errors import OfframpError


class UnusableCheckpoint(OfframpError):
    """A folder that holds no checkpoint that can be served; the message says why."""

    code = "unusable_checkpoint"
