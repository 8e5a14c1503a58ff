"""Errors of reading models, of training and of evaluation."""

from serve.errors import OfframpError


class TrainingFailed(OfframpError):
    """The given model, data or options cannot be trained or measured."""

    code = "training_failed"


class UnusableData(TrainingFailed):
    """A data file that cannot be read; the message names file, line and remedy."""

    code = "unusable_data"


class UnusableCheckpoint(OfframpError):
    """The folder holds no checkpoint that can be read; the message gives the reason."""

    code = "unusable_checkpoint"


def in_one_line(error: BaseException) -> str:
    """Return what another library's error says."""
    return " ".join(str(error).split()) or type(error).__name__
