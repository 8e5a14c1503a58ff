"""Errors of training and evaluation."""

from serve.errors import OfframpError


class TrainingFailed(OfframpError):
    """The given model, data or options cannot be trained or measured."""

    code = "training_failed"


class UnusableData(TrainingFailed):
    """A data file that cannot be read; the message names file, line and remedy."""

    code = "unusable_data"
