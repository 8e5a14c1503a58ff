"""Recipe `frozen`: exits for a trained classifier, whose encoder and head stay unchanged."""

from copy import deepcopy
from pathlib import Path

from models import checkpoints
from models.errors import TrainingFailed
from models.multi_exit import MultiExitModel


def read_classifier(
    folder: Path, labels: tuple[str, ...] | None, exits: tuple[int, ...] | None
) -> MultiExitModel:
    """Read a classifier and add new heads of the same shape before its own.

    Args:
        folder: a transformers classifier, or another checkpoint with a single exit.
        labels: new names for its labels; None keeps them.
        exits: exit layers, counted from 1; None puts a head after every layer.

    Raises:
        TrainingFailed: no such checkpoint, one that already has exits, or labels or exits that do
            not fit it.
    """
    try:
        model = checkpoints.load(folder).model
        if len(model.exits) > 1:
            raise TrainingFailed(
                f"{folder} has exits at {', '.join(map(str, model.exits))} already; "
                "`offramp export` takes it as it is"
            )
        chosen = exits or tuple(range(1, model.exits[-1] + 1))
        config = model.exit_config.model_copy(update={"exits": chosen})
        extended = MultiExitModel(model.encoder, config)
    except (ValueError, OSError) as error:
        raise TrainingFailed(str(error)) from error
    extended.heads[-1] = deepcopy(model.heads[-1])
    if labels:
        rename(extended, labels)
    return extended


def rename(model: MultiExitModel, labels: tuple[str, ...]) -> None:
    """Give a model's labels other names.

    Raises:
        TrainingFailed: there are more or fewer names than labels.
    """
    if len(labels) != len(model.labels):
        raise TrainingFailed(
            f"--labels names {len(labels)} labels; the classifier has {len(model.labels)}: "
            f"{', '.join(model.labels)}"
        )
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {label: i for i, label in enumerate(labels)}
