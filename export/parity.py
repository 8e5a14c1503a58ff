"""Is the bundle the model? Every exit's logits, through the serving code, against PyTorch."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from export.errors import ExportFailed
from export.samples import Batch
from export.stages import Span
from export.walks import walk
from models.multi_exit import MultiExitModel
from serve.manifest import Parity, Precision
from serve.segments import SegmentChain
from serve.shared_layers import SharedLayers

# What int8 and fp16 cost is measured and recorded, not bounded; it must only be finite.
_FINITE = float(np.finfo(np.float32).max)
TOLERANCE: dict[Precision, float] = {"fp32": 1e-4, "int8": _FINITE, "fp16": _FINITE}


class ExitGap(NamedTuple):
    """How far one exit is from the model's, over all batches.

    Attributes:
        exit_layer: which exit.
        max_error: largest absolute difference of a logit; NaN if any logit is.
        agreed: rows with the model's label.
        rows: rows compared.
    """

    exit_layer: int
    max_error: float
    agreed: int
    rows: int


def compare(
    runner: SegmentChain | SharedLayers,
    model: MultiExitModel,
    spans: Iterable[Span],
    batches: Iterable[Batch],
) -> list[ExitGap]:
    """Run batches through both, dropping and reordering rows between segments.

    Padding shrinks with the rows that are left, as it does while serving. Through shared layers
    rows run with others that are at other depths.

    Args:
        runner: the bundle's graphs of one precision.
        model: the original, in evaluation mode.
        spans: which heads of the model the segments end in.
        batches: what to compare on.
    """
    spans = tuple(spans)
    found: list[list[_Difference]] = [[] for _ in spans]
    for seed, batch in enumerate(batches):
        expected = _reference(model, batch)
        for index, rows, logits in walk(runner, batch, seed):
            found[index].append(_difference(logits, expected[spans[index].head][rows]))
    return [_gap(span, differences) for span, differences in zip(spans, found, strict=True)]


def check(gaps: Iterable[ExitGap], precision: Precision) -> None:
    """Raise `ExportFailed`, naming the exit and the error, unless all are within tolerance."""
    tolerance = TOLERANCE[precision]
    for gap in gaps:
        # NaN is within no tolerance.
        if not gap.max_error <= tolerance:
            raise ExportFailed(
                f"exit {gap.exit_layer}: the {precision} segments differ from the model by "
                f"{gap.max_error:.3g} in a logit, more than {tolerance:.3g}"
            )


def summary(gaps: Iterable[ExitGap]) -> Parity:
    """Return what the manifest records; `rows` counts rows of the first exit."""
    gaps = tuple(gaps)
    return Parity(
        max_logit_error=max(gap.max_error for gap in gaps),
        label_agreement=sum(gap.agreed for gap in gaps) / sum(gap.rows for gap in gaps),
        rows=gaps[0].rows,
    )


class _Difference(NamedTuple):
    max_error: float
    agreed: int
    rows: int


def _reference(model: MultiExitModel, batch: Batch) -> list[NDArray[np.float32]]:
    with torch.no_grad():
        return [logits.numpy() for logits in model(*map(torch.from_numpy, batch))]


def _difference(logits: NDArray[np.float32], expected: NDArray[np.float32]) -> _Difference:
    same = logits.argmax(axis=1) == expected.argmax(axis=1)
    return _Difference(float(np.abs(logits - expected).max()), int(same.sum()), len(logits))


def _gap(span: Span, differences: list[_Difference]) -> ExitGap:
    errors, agreed, rows = zip(*differences, strict=True)
    return ExitGap(span.exit_layer, float(np.max(errors)), sum(agreed), sum(rows))
