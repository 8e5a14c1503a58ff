"""What leaving early costs each text: another answer than full depth's, or a wrong one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.certification.answers import METRICS, answers, right_answers
from models.certification.texts import LabelledText
from models.evaluation.bundle_recording import BundleRecording
from serve.bundle.loader import Bundle
from serve.policy.ladder import Loss
from serve.tokenization.tokenizer import Tokens

Losses: TypeAlias = NDArray[np.float64]  # (exits, rows) from 0 to 1

# A regression's values disagree by default from this share of their standard deviation on.
TOLERANCE_SHARE = 0.1


@dataclass(frozen=True)
class Scale:
    """What differences of a regression's values are measured by. Tuning texts choose it.

    Attributes:
        tolerance: values further apart disagree.
        label_range: from the lowest to the highest label; None without labels.
    """

    tolerance: float
    label_range: float | None = None


@dataclass(frozen=True)
class TextLosses:
    """The losses of every text at every exit; 0 at the last one.

    Attributes:
        by_loss: `disagreement`, and `metric` where there are labels.
        binary: the losses that are 0 or 1.
        metric: what the loss `metric` is about; None without labels.
        tolerance: of a regression: values further apart disagree.
    """

    by_loss: dict[Loss, Losses]
    binary: frozenset[Loss]
    metric: str | None = None
    tolerance: float | None = None

    def of(self, rows: NDArray[np.intp]) -> "TextLosses":
        """Return the losses of some of the texts."""
        chosen = {name: losses[:, rows] for name, losses in self.by_loss.items()}
        return replace(self, by_loss=chosen)


def text_losses(
    bundle: Bundle,
    recording: BundleRecording,
    tokens: Sequence[Tokens],
    texts: Sequence[LabelledText],
    scale: Scale | None,
) -> TextLosses:
    """Return what leaving at each exit costs.

    Args:
        bundle: that was recorded.
        recording: of its exits.
        tokens: of the texts.
        texts: the texts; with labels all of them or none.
        scale: of a regression.
    """
    labelled = texts[0].label is not None
    if scale is not None:
        return _of_values(recording.logits[..., 0], texts if labelled else None, scale)
    said = answers(bundle, recording, tokens)
    by_loss: dict[Loss, Losses] = {"disagreement": _as_loss(said != said[-1])}
    if labelled:
        right = right_answers(bundle, recording.logits, texts)
        by_loss["metric"] = _as_loss(right[-1] & ~right)
    metric = METRICS[bundle.manifest.task] if labelled else None
    return TextLosses(by_loss, frozenset(by_loss), metric)


def scale_of(
    values: NDArray[np.float32], texts: Sequence[LabelledText], tolerance: float | None
) -> Scale:
    """Return the scale of a regression.

    Args:
        values: (rows,) full depth's, of tuning texts.
        texts: the same tuning texts.
        tolerance: as wanted; None for a tenth of the values' standard deviation.
    """
    if tolerance is None:
        tolerance = float(f"{TOLERANCE_SHARE * float(np.nanstd(values)):.2g}")
    labels = [each.label for each in texts if isinstance(each.label, float)]
    label_range = max(labels) - min(labels) if labels else 0.0
    return Scale(tolerance, label_range or None)


def _of_values(
    recorded: NDArray[np.float32], texts: Sequence[LabelledText] | None, scale: Scale
) -> TextLosses:
    values = recorded.astype(np.float64)
    # NaN is near nothing.
    near = np.abs(values - values[-1]) <= scale.tolerance
    by_loss: dict[Loss, Losses] = {"disagreement": _as_loss(~near)}
    binary: frozenset[Loss] = frozenset(by_loss)
    if texts is None or scale.label_range is None:
        return TextLosses(by_loss, binary, tolerance=scale.tolerance)
    errors = np.abs(values - np.array([each.label for each in texts], np.float64))
    added = np.nan_to_num((errors - errors[-1]) / scale.label_range, nan=1.0)
    by_loss["metric"] = _as_loss(added.clip(0, 1))
    metric = f"absolute error / {scale.label_range:g}"
    return TextLosses(by_loss, binary, metric, scale.tolerance)


def _as_loss(values: NDArray[Any]) -> Losses:
    losses = values.astype(np.float64)
    losses[-1] = 0
    return losses
