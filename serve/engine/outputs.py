"""What rows take with them: the answer they leave with, and what the exits on their way said."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.criteria.signals import meaningless
from serve.engine.batch import Batch
from serve.engine.row import ExitRecord
from serve.errors import ModelFailure
from serve.rules.traits import Task

Logits: TypeAlias = NDArray[np.float32]
# Logits, whose head gave them, the label that the rule chose or -1, whether they say nothing.
FinalOutput: TypeAlias = tuple[Logits, int, int, bool]


def final_outputs(batch: Batch, rows: NDArray[np.intp], task: Task) -> Iterable[FinalOutput]:
    """Return what these rows leave with.

    Logits are (labels,), of token classification (tokens, labels) without padding. They say
    nothing if they have no distribution: NaN or +inf among them, or nothing but -inf. Of token
    classification that holds for every token, special ones included. A regression's value must be
    finite. Of several labels only NaN says nothing: an infinite logit is a certain yes or no.

    Args:
        batch: that has come by an exit.
        rows: places in it.
        task: the model's.
    """
    given = batch.given
    if given is None:
        logits, heads, labels = batch.logits[rows], batch.exits_of(rows), [-1] * len(rows)
    else:
        logits, heads = given.logits[rows], given.exit_index[rows].tolist()
        labels = given.label[rows].tolist()
    if logits.ndim == 3:
        return _token_by_token(batch, rows, logits, heads)
    return zip(logits, heads, labels, _SAYS_NOTHING[task](logits).tolist(), strict=True)


def failed() -> ModelFailure:
    """Return what a row leaves with whose segment has failed."""
    return ModelFailure("the model failed on this input; the server's log has the cause")


def non_finite_output(layer: int) -> ModelFailure:
    """Return what a row leaves with whose logits say nothing."""
    return ModelFailure(f"the model gave no number at layer {layer}")


def note_passing(batch: Batch, rows: NDArray[np.int64]) -> None:
    """Note, for rows that want it, what the exit said that they have just come by.

    Args:
        batch: judged, its rows still those that were.
        rows: places in it.
    """
    figures = zip(rows.tolist(), batch.exits_of(rows), batch.signals[rows].tolist(), strict=True)
    for i, exit_index, signal in figures:
        row, logits = batch.rows[i], batch.logits[i]
        if row.trail is not None:
            own = logits[: row.num_tokens] if logits.ndim == 2 else logits
            row.trail.append(ExitRecord(exit_index, own.copy(), signal))


def _token_by_token(
    batch: Batch, rows: NDArray[np.intp], logits: Logits, heads: list[int]
) -> Iterable[FinalOutput]:
    broken = (meaningless(logits) & (batch.mask[rows] == 1)).any(axis=1).tolist()
    for i, own, head, says_nothing in zip(rows.tolist(), logits, heads, broken, strict=True):
        yield own[: batch.rows[i].num_tokens], head, -1, says_nothing


def _any_nan(logits: Logits) -> NDArray[np.bool_]:
    unknown: NDArray[np.bool_] = np.logical_or.reduce(np.isnan(logits), axis=-1)
    return unknown


def _any_infinite(logits: Logits) -> NDArray[np.bool_]:
    finite: NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(logits), axis=-1)
    return ~finite


_SAYS_NOTHING: dict[Task, Callable[[Logits], NDArray[np.bool_]]] = {
    "single_label": meaningless,
    "multi_label": _any_nan,
    "regression": _any_infinite,
    "token": meaningless,
}
