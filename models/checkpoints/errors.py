"""Errors of reading checkpoints."""

from serve.errors import OfframpError


class UnusableCheckpoint(OfframpError):
    """The folder holds no checkpoint that can be served; the message gives the reason."""

    code = "unusable_checkpoint"
