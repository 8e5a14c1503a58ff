"""Compares the outputs of every exit, through the serving code, with the PyTorch model."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from export.chain.stages import Span
from export.checks.samples import Batch
from export.checks.walks import Reading, walk
from export.errors import ExportFailed
from models.multi_exit import MultiExitModel
from serve.bundle.manifest import Parity, Precision
from serve.engine.runner import ModelRunner
from serve.rules.signals import decisions
from serve.rules.traits import Task

# The errors of int8 and fp16 are recorded and not bounded; they must only be finite.
_FINITE = float(np.finfo(np.float32).max)
TOLERANCE: dict[Precision, float] = {"fp32": 1e-4, "int8": _FINITE, "fp16": _FINITE}


class ExitGap(NamedTuple):
    """How far one exit is from the model's, over all batches.

    Attributes:
        exit_layer: which exit.
        max_error: largest absolute difference of a logit, or of a head's predicted error; NaN if
            any difference is NaN.
        agreed: rows with the model's label, or with all of several labels; of token
            classification, the sum over rows of the share of their tokens with the model's label.
        rows: compared.
    """

    exit_layer: int
    max_error: float
    agreed: float
    rows: int


def compare(
    runner: ModelRunner,
    model: MultiExitModel,
    spans: Iterable[Span],
    batches: Iterable[Batch],
) -> list[ExitGap]:
    """Run batches through both, dropping and reordering rows between segments.

    Padding shrinks with the rows that are left, as it does while serving.

    Args:
        runner: the bundle's graphs of one precision.
        model: the original, in evaluation mode.
        spans: which heads of the model the segments end in.
        batches: to run.
    """
    spans = tuple(spans)
    found: list[list[_Difference]] = [[] for _ in spans]
    for seed, batch in enumerate(batches):
        expected = _reference(model, batch)
        for reading in walk(runner, batch, seed):
            head = spans[reading.exit_index].head
            found[reading.exit_index].append(
                _difference(model.traits.task, reading, expected[head], batch)
            )
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
    agreed: float
    rows: int


class _Expected(NamedTuple):
    logits: NDArray[np.float32]  # (rows, labels) or (rows, tokens, labels)
    uncertainty: NDArray[np.float32] | None  # (rows,)


def _reference(model: MultiExitModel, batch: Batch) -> list[_Expected]:
    with torch.no_grad():
        return [
            _Expected(
                logits=said.logits.numpy(),
                uncertainty=None if said.uncertainty is None else said.uncertainty.numpy(),
            )
            for said in model.exit_outputs(*map(torch.from_numpy, batch))
        ]


def _difference(task: Task, reading: Reading, expected: _Expected, batch: Batch) -> _Difference:
    logits, right = reading.logits, expected.logits[reading.rows]
    if logits.ndim == 2:
        same = decisions(task, logits) == decisions(task, right)
        same = same.all(axis=1) if task == "multi_label" else same
    else:
        right = right[:, : logits.shape[1]]
        real = batch.attention_mask[reading.rows, : logits.shape[1]].astype(bool)
        alike = (decisions(task, logits) == decisions(task, right)) & real
        same = alike.sum(axis=1) / np.maximum(real.sum(axis=1), 1)
        logits, right = logits[real], right[real]
    errors = [np.abs(logits - right).max(initial=0), _unsureness_gap(reading, expected)]
    return _Difference(float(np.max(errors)), float(same.sum()), len(reading.rows))


def _unsureness_gap(reading: Reading, expected: _Expected) -> float:
    """Return the largest difference of the heads' predicted errors; infinity if one is missing."""
    if expected.uncertainty is None:
        return 0.0
    if reading.uncertainty is None:
        return float("inf")
    return float(np.abs(reading.uncertainty - expected.uncertainty[reading.rows]).max())


def _gap(span: Span, differences: list[_Difference]) -> ExitGap:
    errors, agreed, rows = zip(*differences, strict=True)
    return ExitGap(span.exit_layer, float(np.max(errors)), sum(agreed), sum(rows))
