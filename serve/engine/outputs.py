"""What rows leave with: an answer or an error, and the record of the exits they have passed."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.engine.batch import Batch
from serve.engine.row import Answer, ExitRecord, Outcome, Row, SegmentTrace
from serve.errors import Cancelled, DeadlineExceeded, ModelFailure, OfframpError
from serve.rules.criterion import Reason
from serve.rules.signals import meaningless
from serve.rules.traits import Task, Traits

Logits: TypeAlias = NDArray[np.float32]
_REASONS = tuple(Reason)


class FinalOutput(NamedTuple):
    """What one row leaves with.

    Attributes:
        logits: (labels,); for token classification (tokens, labels) without padding.
        exit_index: where the row leaves.
        head_index: the exit whose head gave them.
        label: the label that the rule chose; else -1.
        non_finite: whether the logits have no distribution.
    """

    logits: Logits
    exit_index: int
    head_index: int
    label: int
    non_finite: bool


def outcomes_of(
    batch: Batch,
    leaving: NDArray[np.intp],
    reasons: NDArray[np.int8],
    traits: Traits,
    now_s: float,
) -> list[Outcome]:
    """Return the outcomes of rows that leave.

    Args:
        batch: a batch that has passed an exit.
        leaving: places of the rows in it.
        reasons: (rows,) why each row of the batch leaves.
        traits: the model's traits.
        now_s: on the clock of deadlines.
    """
    figures = zip(
        leaving.tolist(),
        reasons[leaving].tolist(),
        batch.signals[leaving].tolist(),
        final_outputs(batch, leaving, traits.task),
        strict=True,
    )
    return [
        outcome_of(batch.rows[i], output, _REASONS[reason], signal, traits, now_s)
        for i, reason, signal, output in figures
    ]


def outcome_of(
    row: Row,
    output: FinalOutput,
    reason: Reason,
    signal: float,
    traits: Traits,
    now_s: float,
) -> Outcome:
    """Return the outcome of one row that leaves at an exit."""
    logits, exit_index, head_index, label, non_finite = output
    if non_finite:
        return Outcome(row, non_finite_output(traits.exits[head_index]))
    queue_s, compute_s = row.started_s - row.admitted_s, now_s - row.started_s
    if row.so_far:
        queue_s, compute_s = queue_s + row.so_far.queue_s, compute_s + row.so_far.compute_s
    trace = () if row.exit_trace is None else row.exit_trace
    times_s = queue_s, compute_s
    answer = Answer(logits, exit_index, reason, signal, *times_s, head_index, label, trace)
    return Outcome(row, answer)


def final_outputs(batch: Batch, rows: NDArray[np.intp], task: Task) -> Iterable[FinalOutput]:
    """Return what these rows leave with.

    Logits have no distribution with NaN or +inf among them, or nothing but -inf; for token
    classification that holds for every token, special ones included. A regression's value must be
    finite. With several labels only NaN has none: an infinite logit is a certain yes or no.

    Args:
        batch: a batch that has passed an exit.
        rows: places in it.
        task: the model's.
    """
    exits = [batch.depth - 1] * len(rows)
    if batch.prediction is None:
        logits = batch.head.logits[rows]
        heads, labels = exits, [-1] * len(rows)
    else:
        logits, heads = batch.prediction.logits[rows], batch.prediction.exit_index[rows].tolist()
        labels = batch.prediction.label[rows].tolist()
    if logits.ndim == 3:
        return _token_by_token(batch, rows, logits, heads)
    non_finite = non_finite_rows(task, logits).tolist()
    return map(FinalOutput._make, zip(logits, exits, heads, labels, non_finite, strict=True))


def non_finite_rows(task: Task, logits: Logits) -> NDArray[np.bool_]:
    """Return (rows,) whether logits have no distribution, see `final_outputs`; of tokens, each's.

    Args:
        task: the model's.
        logits: (rows, labels); (rows, tokens, labels) without padding for tokens.
    """
    return _NON_FINITE[task](logits)


def record_exit(batch: Batch) -> None:
    """Append to the rows' exit traces what the exit gave that they have just passed.

    Args:
        batch: judged; its rows have not been compacted yet.
    """
    for row, logits, signal in zip(
        batch.rows, batch.head.logits, batch.signals.tolist(), strict=True
    ):
        if row.exit_trace is not None:
            own = logits[: row.num_tokens] if logits.ndim == 2 else logits
            row.exit_trace.append(ExitRecord(batch.depth - 1, own.copy(), signal))


def record_run(
    rows: Sequence[Row], exit_index: int, run_s: float, clock: Callable[[], float]
) -> None:
    """Append a run that has just ended to the segment traces of those rows that have one.

    Args:
        rows: number of rows in the batch.
        exit_index: the exit that the run has reached.
        run_s: how long it took.
        clock: the engine's.
    """
    traces = [row.segment_trace for row in rows if row.segment_trace is not None]
    if traces:
        ended_s = clock()
        run = SegmentTrace(exit_index, len(rows), ended_s - run_s, ended_s)
        for trace in traces:
            trace.append(run)


def expired(row: Row, now_s: float) -> bool:
    """Tell whether a row has been cancelled, or its deadline has passed."""
    return row.cancelled or row.deadline_s <= now_s


def refusal(row: Row) -> Outcome:
    """Return the outcome of an expired row that no segment has seen."""
    if row.cancelled:
        return Outcome(row, client_left())
    return Outcome(row, row.so_far or DeadlineExceeded())


def client_left() -> OfframpError:
    """Return the error of a row whose client has left."""
    return Cancelled("the client has left")


def segment_failed() -> ModelFailure:
    """Return the error of a row whose segment raised."""
    return ModelFailure("the model failed on this input; the server's log has the cause")


def non_finite_output(layer: int) -> ModelFailure:
    """Return the error of a row whose logits have no distribution."""
    return ModelFailure(f"the model gave no number at layer {layer}")


def _token_by_token(
    batch: Batch, rows: NDArray[np.intp], logits: Logits, heads: list[int]
) -> Iterable[FinalOutput]:
    non_finite = (meaningless(logits) & (batch.mask[rows] == 1)).any(axis=1).tolist()
    for i, own, head, broken in zip(rows.tolist(), logits, heads, non_finite, strict=True):
        yield FinalOutput(own[: batch.rows[i].num_tokens], batch.depth - 1, head, -1, broken)


def _any_nan(logits: Logits) -> NDArray[np.bool_]:
    unknown: NDArray[np.bool_] = np.logical_or.reduce(np.isnan(logits), axis=-1)
    return unknown


def _any_infinite(logits: Logits) -> NDArray[np.bool_]:
    finite: NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(logits), axis=-1)
    return ~finite


_NON_FINITE: dict[Task, Callable[[Logits], NDArray[np.bool_]]] = {
    "single_label": meaningless,
    "multi_label": _any_nan,
    "regression": _any_infinite,
    "token": meaningless,
}
