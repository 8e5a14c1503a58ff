"""Waves that meet at one depth, or in a shared-layer model at any, go on as one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serve.columns import RuleColumns
from serve.judge import Given
from serve.runner import AnyRunner
from serve.wave import Wave, gather, places


def merge(waves: Sequence[Wave], runner: AnyRunner) -> Wave:
    """Join waves into one; their hidden states are copied together.

    Args:
        waves: one or more, all with hidden states.
        runner: joins the hidden states, wherever they lie.
    """
    merged = gather(waves)
    if len(waves) == 1:
        return merged
    merged.hidden = runner.join([(wave.hidden, wave.keep, wave.longest) for wave in waves])
    merged.keep, longest = places(len(merged.rows)), merged.longest
    merged.columns = RuleColumns.concatenate([wave.columns for wave in waves])
    merged.mask = _together([wave.mask for wave in waves], 0, longest)
    merged.logits = _together([wave.logits for wave in waves], np.nan, longest)
    merged.signals = np.concatenate([wave.signals for wave in waves])
    merged.has_trails = any([wave.has_trails for wave in waves])
    if waves[0].depths is not None:
        merged.depths = np.concatenate([w.depths for w in waves if w.depths is not None])
        merged.last_exit = np.concatenate([w.last_exit for w in waves if w.last_exit is not None])
    if waves[0].counted is not None:
        counted = [wave.counted for wave in waves if wave.counted is not None]
        merged.counted = _together(counted, False, longest)
    if any([wave.given is not None for wave in waves]):
        merged.given = _given_together([given_of(wave) for wave in waves], longest)
    return merged


def given_of(wave: Wave) -> Given:
    """Return the answers that the wave's rows would leave with now.

    Where no rule gives others, they are what the exits have said that the rows came by last.
    """
    if wave.given is not None:
        return wave.given
    every_row = places(len(wave.rows))
    exits = np.array(wave.exits_of(every_row), np.int64)
    return Given(wave.logits, exits, np.full(len(wave.rows), -1))


def _given_together(parts: Sequence[Given], longest: int) -> Given:
    return Given(
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
