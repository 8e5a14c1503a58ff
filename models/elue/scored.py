"""Scores of several reports on one reference, and their mean over tasks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from models.data.notes import note
from models.elue.reports import Measured
from models.elue.score import EluScore, Place, elue_score, overall
from models.errors import TrainingFailed
from models.quality.points import STATIC
from serve.rules.traits import listed


class Row(NamedTuple):
    """A model's score on a task.

    Attributes:
        measured: the model.
        family: the kind of rule whose points were scored.
        num_points: how many.
        found: the score.
    """

    measured: Measured
    family: str
    num_points: int
    found: EluScore


def scored(
    models: Sequence[Measured], references: Sequence[Measured], family: str | None
) -> list[Row]:
    """Score models, each on the reference's points of its task.

    Args:
        models: to be scored.
        references: static models; of several seeds and depths of a task, all points count.
        family: the kind of rule; None for the one that a report judges by.

    Raises:
        TrainingFailed: the reference lacks a task, or a report such rules.
    """
    return [_row(model, reference_of(model, references), family) for model in models]


def overall_of(rows: Sequence[Row]) -> float:
    """Return the mean over tasks; of several reports of a task, their mean counts once."""
    tasks = {row.measured.task for row in rows}
    by_task = [[r.found.score for r in rows if r.measured.task == task] for task in sorted(tasks)]
    return overall([float(np.mean(scores)) for scores in by_task])


def reference_of(model: Measured, references: Sequence[Measured]) -> list[Place]:
    """Return the reference's points on a model's task.

    Raises:
        TrainingFailed: there are none.
    """
    own = [each for each in references if each.task == model.task]
    if not own:
        known = listed(sorted({each.task for each in references}))
        raise TrainingFailed(
            f"{model.name} is measured on {model.task}, the reference on {known}: give reports of "
            "the same task, or say by --task which one all reports are of"
        )
    if model.data and any(each.data not in (None, model.data) for each in own):
        note(f"{model.name} and the reference were measured on other texts of {model.task}")
    return [place for each in own for place in each.points(STATIC)]


def _row(model: Measured, reference: list[Place], family: str | None) -> Row:
    points = model.points(family)
    return Row(model, family or model.judged_by, len(points), elue_score(points, reference))
