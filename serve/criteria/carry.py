"""What only some rules carry from exit to exit: columns that most batches do without.

A carry is a dict of arrays by name, rows first. Rows whose rule has no use for a column hold its
blank. Of token classification the second axis may be tokens, as many as the batch is padded to;
it grows and shrinks with the padding, and what lies beyond a row's own tokens means nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Carry: TypeAlias = dict[str, NDArray[Any]]

# What the rule asks for.
THRESHOLDS: Final = "thresholds"  # (rows, exits) float32; NaN for the one that all exits share
QUANTILE: Final = "quantile"  # (rows,) of `serve.criteria.multipart.reduced`; NaN for the mean
SHARE: Final = "share"  # (rows,) float64, of votes per scale
SCALE: Final = "scale"  # (rows, exits) float64: what votes are divided by
WEIGHTS: Final = "weights"  # (rows, exits) float64: what votes count
OF_LABEL: Final = "of_label"  # (rows, labels) float32: each label's threshold
FALLBACK: Final = "fallback"  # (rows,) bool: the most confident exit answers if none was
ENSEMBLE: Final = "ensemble"  # (rows,) int8: `NO_ENSEMBLE`, `OF_RUN` or `OF_ALL`
# How far the row has come.
BEFORE: Final = "before"  # (rows, parts) int32: the labels at the exit before; -1 for none
VALUE: Final = "value"  # (rows,) float32: the value at the exit before, NaN for none
VOTES: Final = "votes"  # (rows, labels) float64
BEST: Final = "best"  # (rows,) float32: the highest confidence so far
BEST_EXIT: Final = "best_exit"  # (rows,) int64: where; -1 for none
BEST_LOGITS: Final = "best_logits"  # (rows, labels) or (rows, tokens, labels)
TOTAL: Final = "total"  # likewise: probabilities added up
HEADS: Final = "heads"  # (rows,) int32: over how many exits

NO_ENSEMBLE, OF_RUN, OF_ALL = 0, 1, 2

BLANKS: dict[str, float] = {
    THRESHOLDS: np.nan,
    SHARE: np.inf,
    SCALE: 1,
    WEIGHTS: 0,
    OF_LABEL: np.inf,
    FALLBACK: False,
    ENSEMBLE: NO_ENSEMBLE,
    BEFORE: -1,
    VALUE: np.nan,
    VOTES: 0,
    BEST: -np.inf,
    BEST_EXIT: -1,
    BEST_LOGITS: np.nan,
    TOTAL: 0,
    HEADS: 0,
    # Rows without it have parts reduced by the least sure, or are of models without parts.
    QUANTILE: 1,
}


def stack(carries: Sequence[Carry]) -> Carry:
    """Return the columns of rows of which each has its own values, without the rows' axis."""
    return {
        name: np.stack([own.get(name, np.full_like(like, BLANKS[name])) for own in carries])
        for name, like in _examples(carries)
    }


def take(carry: Carry, rows: NDArray[np.intp]) -> Carry:
    """Return the columns of these rows only, in this order."""
    return {name: column[rows] for name, column in carry.items()}


def concatenate(parts: Sequence[tuple[int, Carry]]) -> Carry:
    """Return the rows of all parts one after another; parts may lack columns.

    Args:
        parts: number of rows, and their columns.
    """
    carries = [carry for _, carry in parts]
    together: Carry = {}
    for name, like in _examples(carries):
        columns = [
            carry.get(name, np.full((num_rows, *like.shape[1:]), BLANKS[name], like.dtype))
            for num_rows, carry in parts
        ]
        width = max(_width(column) for column in columns)
        together[name] = np.concatenate([fit(column, width, BLANKS[name]) for column in columns])
    return together


def put(carry: Carry, rows: NDArray[np.intp], part: Carry) -> None:
    """Write back columns that were taken from these rows, and have changed since."""
    for name, column in part.items():
        width = max(_width(carry[name]), _width(column))
        carry[name] = fit(carry[name], width, BLANKS[name])
        carry[name][rows] = fit(column, width, BLANKS[name])


def fit(column: NDArray[Any], width: int, blank: float) -> NDArray[Any]:
    """Return a column with its second axis cut or filled up to a width; itself if it has it."""
    if column.ndim == 1 or column.shape[1] == width:
        return column
    if column.shape[1] > width:
        return column[:, :width]
    fitted = np.full((len(column), width, *column.shape[2:]), blank, column.dtype)
    fitted[:, : column.shape[1]] = column
    return fitted


def _width(column: NDArray[Any]) -> int:
    return column.shape[1] if column.ndim > 1 else 0


def _examples(carries: Iterable[Carry]) -> list[tuple[str, NDArray[Any]]]:
    """Return each column's name once, with an array of its shape and type."""
    return list({name: column for carry in carries for name, column in carry.items()}.items())
