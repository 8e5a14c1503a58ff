"""What travels through the engine: rows in, answers out."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from serve.errors import OfframpError
from serve.rules import CompiledRule
from serve.rules.criterion import Reason


class Priority(IntEnum):
    """Which of the waiting rows goes first; the smaller one."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


class ExitRecord(NamedTuple):
    """What an exit's head gave for a row that passed it.

    Attributes:
        exit_index: which exit, counted from 0.
        logits: (labels,) float32; for token classification (tokens, labels).
        signal: the rule's signal there; NaN where the rule has none.
        mapped: see `Answer`.
    """

    exit_index: int
    logits: NDArray[np.float32]
    signal: float
    mapped: NDArray[np.float32] | None = None

    @property
    def score_logits(self) -> NDArray[np.float32]:
        """The logits that scores are computed from."""
        return self.logits if self.mapped is None else self.mapped


class SegmentTrace(NamedTuple):
    """One run of a batch that a row was in.

    Attributes:
        exit_index: the exit that the run has reached, counted from 0.
        num_rows: rows in the batch.
        began_s: on the engine's clock.
        ended_s: on the engine's clock.
    """

    exit_index: int
    num_rows: int
    began_s: float
    ended_s: float


class Waiter(Protocol):
    """Waits on an event loop for the outcomes of rows."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where outcomes are settled."""
        ...

    def settle(self, place: int, result: "Answer | OfframpError") -> None:
        """Take the outcome of the row with this tag. To be called on the loop's thread only."""
        ...


@dataclass(slots=True, eq=False)
class Row:
    """One text, or window of one, in flight.

    Attributes:
        input_ids: (tokens,) int64, special tokens included.
        token_type_ids: (tokens,) int64.
        rule: worked out for the model; the same for the row's whole life.
        tag: the caller's own number for it, such as its place in the request.
        waiter: waits for its outcome; None where the caller of the core takes it.
        deadline_s: on the engine's clock; infinite for none.
        priority: which rows go first, waiting or in flight.
        ahead_tokens: tokens of the rows of the same request that stand before this one.
        cancelled: set by the caller, from any thread, when no answer is wanted any more.
        admitted_s: set on admission.
        started_s: set when the first segment starts.
        counted: (tokens,) which tokens exit rules look at, for token classification; special
            tokens are left out. None for all.
        exit_trace: collects what every exit gives for the row; None if it was not asked for.
        client: who has sent it; clients share the queue and the machine.
        segment_trace: collects the runs that the row is in; None if it was not asked for.
        in_front: token ids and types for the small model in front; None if it is not to be run.
        so_far: what the small model in front has said, with which the row leaves if its deadline
            passes before its first exit here; None without.
        num_tokens: length, special tokens included.
    """

    input_ids: NDArray[np.int64]
    token_type_ids: NDArray[np.int64]
    rule: CompiledRule
    tag: int = 0
    waiter: Waiter | None = None
    deadline_s: float = math.inf
    priority: Priority = Priority.NORMAL
    ahead_tokens: int = 0
    cancelled: bool = False
    admitted_s: float = math.nan
    started_s: float = math.nan
    counted: NDArray[np.bool_] | None = None
    exit_trace: list[ExitRecord] | None = None
    client: str = ""
    segment_trace: list[SegmentTrace] | None = None
    in_front: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    so_far: "Answer | None" = None
    num_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_tokens = len(self.input_ids)


class Answer(NamedTuple):
    """What a row leaves with.

    Attributes:
        logits: (labels,) float32; for token classification (tokens, labels). They have a
            distribution, see `serve.engine.outputs`.
        exit_index: where the row left, counted from 0.
        reason: why it left there.
        signal: the rule's signal at that exit; NaN where the rule has none.
        queue_s: time from admission to the first segment.
        compute_s: time from the first segment to the answer; other batches may run in between.
        head_index: the exit whose head gave the logits; by most rules `exit_index`.
        label: the label, if the rule chose it by other means than the largest logit; else -1.
        exit_trace: what every exit gave that the row passed, if it was asked for.
        scores: (labels,) of a text in several windows, where its scores are not the softmax of
            its logits; None elsewhere.
        mapped: shaped as the logits; where a calibration maps the exit's scores to full depth's,
            the logits that give them. None where the scores are those of `logits`.
        cached: whether it is the answer of an earlier row, given again.
    """

    logits: NDArray[np.float32]
    exit_index: int
    reason: Reason
    signal: float
    queue_s: float
    compute_s: float
    head_index: int
    label: int = -1
    exit_trace: Sequence[ExitRecord] = ()
    scores: NDArray[np.float32] | None = None
    mapped: NDArray[np.float32] | None = None
    cached: bool = False

    @property
    def score_logits(self) -> NDArray[np.float32]:
        """The logits that scores are computed from."""
        return self.logits if self.mapped is None else self.mapped


class Outcome(NamedTuple):
    """A row and the one answer or error it gets."""

    row: Row
    result: Answer | OfframpError


Deliver = Callable[[Sequence[Outcome]], None]


class BatchStats(NamedTuple):
    """One segment run, for the metrics.

    Attributes:
        exit_index: which segment, counted from 0.
        num_rows: rows in the batch.
        num_tokens: real tokens.
        padded_tokens: rows times the longest row's tokens.
        segment_s: time in the segment.
        judge_s: time in judging the rows and letting them leave.
    """

    exit_index: int
    num_rows: int
    num_tokens: int
    padded_tokens: int
    segment_s: float
    judge_s: float
