"""Batches that meet at one depth, or in a shared-layer model at any, go on as one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serve.criteria.judge import Prediction
from serve.criteria.rule_state import RuleState
from serve.engine.batch import Batch, gather, places
from serve.engine.runner import AnyRunner


def merge(batches: Sequence[Batch], runner: AnyRunner) -> Batch:
    """Join batches into one; their hidden states are copied together.

    Args:
        batches: one or more, all with hidden states.
        runner: joins the hidden states, wherever they lie.
    """
    merged = gather(batches)
    if len(batches) == 1:
        return merged
    merged.hidden = runner.join([(batch.hidden, batch.keep, batch.longest) for batch in batches])
    merged.keep, longest = places(len(merged.rows)), merged.longest
    merged.columns = RuleState.concatenate([batch.columns for batch in batches])
    merged.mask = _together([batch.mask for batch in batches], 0, longest)
    merged.logits = _together([batch.logits for batch in batches], np.nan, longest)
    merged.signals = np.concatenate([batch.signals for batch in batches])
    merged.has_trails = any([batch.has_trails for batch in batches])
    if batches[0].depths is not None:
        merged.depths = np.concatenate([w.depths for w in batches if w.depths is not None])
        merged.last_exit = np.concatenate([w.last_exit for w in batches if w.last_exit is not None])
    if batches[0].counted is not None:
        counted = [batch.counted for batch in batches if batch.counted is not None]
        merged.counted = _together(counted, False, longest)
    if any([batch.given is not None for batch in batches]):
        merged.given = _given_together([given_of(batch) for batch in batches], longest)
    return merged


def given_of(batch: Batch) -> Prediction:
    """Return the answers that the batch's rows would leave with now.

    Where no rule gives others, they are what the exits have said that the rows came by last.
    """
    if batch.given is not None:
        return batch.given
    every_row = places(len(batch.rows))
    exits = np.array(batch.exits_of(every_row), np.int64)
    return Prediction(batch.logits, exits, np.full(len(batch.rows), -1))


def _given_together(parts: Sequence[Prediction], longest: int) -> Prediction:
    return Prediction(
        _together([part.logits for part in parts], np.nan, longest),
        np.concatenate([part.exit_index for part in parts]),
        np.concatenate([part.label for part in parts]),
    )


def _together(parts: Sequence[NDArray[Any]], fill: float, longest: int) -> NDArray[Any]:
    """Return the parts' rows one after another.

    Where the second axis is that of tokens, all are filled up to the longest row. Fresh rows of
    shared layers have no logits yet, whatever the others'.
    """
    shapes = [part.shape[1:] for part in parts]
    axes = max(map(len, shapes))
    labels = max(shape[-1] for shape in shapes)
    shape = (longest, labels) if axes == 2 else (labels,)
    if shapes.count(shape) == len(shapes):
        return np.concatenate(parts)
    together = np.full((sum(map(len, parts)), *shape), fill, parts[0].dtype)
    row = 0
    for part, own in zip(parts, shapes, strict=True):
        if len(own) == axes:
            together[(slice(row, row + len(part)), *(slice(size) for size in own))] = part
        row += len(part)
    return together
