"""Exits for a classifier that is trained already: its encoder and its own head stay as they are."""

from copy import deepcopy
from pathlib import Path

from models import checkpoints
from models.errors import TrainingFailed
from models.multi_exit import MultiExitModel


def read_classifier(
    folder: Path, labels: tuple[str, ...] | None, exits: tuple[int, ...] | None
) -> MultiExitModel:
    """Put fresh heads before a classifier's own, which answers after the last layer as ever.

    The fresh heads have the shape of that one.

    Args:
        folder: a transformers classifier, or another checkpoint with a single exit.
        labels: other names for its labels.
        exits: exit layers, counted from 1; None puts a head after every layer.

    Raises:
        TrainingFailed: no such checkpoint, it has exits already, or labels or exits do not fit it.
    """
    try:
        model = checkpoints.load(folder).model
        if len(model.exits) > 1:
            raise TrainingFailed(
                f"{folder} has exits at {', '.join(map(str, model.exits))} already; "
                "`offramp export` takes it as it is"
            )
        grown = with_earlier_exits(model, exits)
    except (ValueError, OSError) as error:
        raise TrainingFailed(str(error)) from error
    if labels:
        _rename(grown, labels)
    return grown


def with_earlier_exits(
    model: MultiExitModel, exits: tuple[int, ...] | None = None
) -> MultiExitModel:
    """Return a model with the same encoder and last head, and fresh heads at the other exits.

    Args:
        model: with one exit, after the last layer.
        exits: exit layers; None for all layers.

    Raises:
        ValueError: they do not end with the last layer, or do not ascend.
    """
    chosen = exits or tuple(range(1, model.exits[-1] + 1))
    grown = MultiExitModel(model.encoder, model.exit_config.model_copy(update={"exits": chosen}))
    grown.heads[-1] = deepcopy(model.heads[-1])
    return grown


def _rename(model: MultiExitModel, labels: tuple[str, ...]) -> None:
    if len(labels) != len(model.labels):
        raise TrainingFailed(
            f"--labels names {len(labels)} labels; the classifier has {len(model.labels)}: "
            f"{', '.join(model.labels)}"
        )
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {label: i for i, label in enumerate(labels)}
