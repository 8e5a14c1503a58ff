"""Why training or evaluation stops."""

from serve.errors import OfframpError


class TrainingFailed(OfframpError):
    """What was given cannot be trained or measured."""

    code = "training_failed"


class UnusableData(TrainingFailed):
    """A data file that cannot be read; the message names file, line and remedy."""

    code = "unusable_data"
