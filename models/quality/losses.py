"""What leaving early costs each text: another answer than full depth's, or a wrong one."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.quality.recorded import Recorded, score_gaps
from models.quality.reference import ReferenceAnswers
from serve.classifier.score_map import ScoreMap
from serve.policy.ladder import SCORE_TOLERANCE, Loss
from serve.rules.traits import Task

# What a text must have right, by task.
METRICS: dict[Task, str] = {
    "single_label": "accuracy",
    "multi_label": "exact match",
    "token": "all entities right",
}
# A regression's values disagree by default from this share of their standard deviation on.
TOLERANCE_SHARE = 0.1


@dataclass(frozen=True)
class Scale:
    """What differences of a regression's values are measured by. Tuning texts choose it.

    Attributes:
        tolerance: values further apart disagree.
        label_range: from the lowest to the highest label; None without labels.
        spread: standard deviation of full depth's values.
    """

    tolerance: float
    label_range: float | None = None
    spread: float = 0.0


@dataclass(frozen=True)
class Losses:
    """The losses of every text at every exit, from 0 to 1; 0 at the last, but for a reference's.

    Attributes:
        by_loss: (exits, rows) of `disagreement`, of `metric` where there are labels, of `score`
            where there are scores, and of those about a reference where there is one.
        binary: the losses that are 0 or 1.
        metric: what the loss `metric` is about; None without labels.
        tolerance: of a regression: values further apart disagree.
    """

    by_loss: dict[Loss, NDArray[np.float64]]
    binary: frozenset[Loss]
    metric: str | None = None
    tolerance: float | None = None


def scale_of(tuning: Recorded, tolerance: float | None) -> Scale | None:
    """Return the scale of a regression; None of another task.

    Args:
        tuning: texts that will not certify.
        tolerance: as wanted; None for a tenth of the standard deviation of full depth's values.
    """
    if tuning.traits.task != "regression":
        return None
    spread = float(np.nanstd(tuning.logits[-1, :, 0]))
    if tolerance is None:
        tolerance = float(f"{TOLERANCE_SHARE * spread:.2g}")
    label_range = 0.0 if tuning.gold is None else float(np.ptp(tuning.gold))
    return Scale(tolerance, label_range or None, spread)


def losses_of(
    recorded: Recorded,
    scale: Scale | None,
    scores: ScoreMap | None = None,
    reference: ReferenceAnswers | None = None,
) -> Losses:
    """Return what leaving at each exit costs.

    Args:
        recorded: the texts; without correct answers what the task's metric loses is left out.
        scale: of a regression.
        scores: maps the exits' scores; without it what scores lose is left out.
        reference: another classifier's answers to the texts; without it those losses are left out.
    """
    found = _of_values(recorded, scale) if scale else _of_labels(recorded, scores)
    if reference is None:
        return found
    by_loss: dict[Loss, NDArray[np.float64]] = {
        "reference": np.stack(
            [reference.differs(recorded, exit_, found.tolerance) for exit_ in recorded.logits]
        ).astype(np.float64)
    }
    if scores is not None and reference.scored:
        gaps = score_gaps(recorded, scores, reference.logits)
        by_loss["reference_score"] = (gaps > SCORE_TOLERANCE).astype(np.float64)
    return replace(found, by_loss=found.by_loss | by_loss, binary=found.binary | by_loss.keys())


def _of_labels(recorded: Recorded, scores: ScoreMap | None) -> Losses:
    by_loss: dict[Loss, NDArray[np.float64]] = {"disagreement": _as_loss(~recorded.same())}
    right, metric = recorded.right, None
    if right is not None:
        by_loss["metric"] = _as_loss(right[-1] & ~right)
        metric = METRICS[recorded.traits.task]
    if scores is not None:
        by_loss["score"] = _as_loss(score_gaps(recorded, scores) > SCORE_TOLERANCE)
    return Losses(by_loss, frozenset(by_loss), metric)


def _of_values(recorded: Recorded, scale: Scale) -> Losses:
    differs = _as_loss(~recorded.same(scale.tolerance))
    found = Losses({"disagreement": differs}, frozenset({"disagreement"}), None, scale.tolerance)
    if recorded.gold is None or scale.label_range is None:
        return found
    errors = np.abs(recorded.logits[..., 0].astype(np.float64) - recorded.gold)
    added = np.nan_to_num((errors - errors[-1]) / scale.label_range, nan=1.0)
    by_loss = found.by_loss | {"metric": _as_loss(added.clip(0, 1))}
    return replace(found, by_loss=by_loss, metric=f"absolute error / {scale.label_range:g}")


def _as_loss(values: NDArray[Any]) -> NDArray[np.float64]:
    losses = values.astype(np.float64)
    losses[-1] = 0
    return losses
