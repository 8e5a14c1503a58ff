"""What the engine needs of the segments: the interface that `serve.runtime` implements."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ids: TypeAlias = NDArray[np.int64]  # (rows, tokens)
Hidden: TypeAlias = Any  # (rows, tokens, width), wherever the runner keeps it


class StepOutput(NamedTuple):
    """What a run gives at the exit where it ends.

    Attributes:
        hidden: hidden states for the next segment; None after the last.
        logits: (rows, labels) float32; for token classification (rows, tokens, labels).
        uncertainty: (rows,) float32, the error that the head predicts for itself; None without.
    """

    hidden: Hidden
    logits: NDArray[np.float32]
    uncertainty: NDArray[np.float32] | None = None


class QueuedOutput(Protocol):
    """What a run gives that may not have ended; see `StepOutput`.

    The next run may be given its hidden states at once. To read anything else waits for the run.
    """

    @property
    def hidden(self) -> Hidden: ...

    @property
    def logits(self) -> NDArray[np.float32]: ...

    @property
    def uncertainty(self) -> NDArray[np.float32] | None: ...


class ModelRunner(Protocol):
    """A model's segments, one per active exit. One caller at a time."""

    def __len__(self) -> int:
        """Number of segments."""
        ...

    def start(
        self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids, until: int = 0
    ) -> QueuedOutput:
        """Run from the first segment to an exit.

        Args:
            input_ids: (rows, tokens), padded.
            attention_mask: (rows, tokens), 1 for real tokens.
            token_type_ids: (rows, tokens).
            until: index of the active exit at which the run ends. The heads of exits before it do
                not run.
        """
        ...

    def advance(
        self,
        index: int,
        hidden: Hidden,
        keep: NDArray[np.int64],
        attention_mask: Ids,
        until: int | None = None,
    ) -> QueuedOutput:
        """Run from segment `index` to an exit, on some rows of what the segment before gave.

        Args:
            index: the first segment to run, 1 or more.
            hidden: (rows_in, tokens_in, width).
            keep: (rows,) which rows of `hidden` go on, in this order.
            attention_mask: (rows, tokens), tokens <= tokens_in; the rest is cut off.
            until: index of the active exit at which the run ends; None for that of segment `index`.
        """
        ...

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        """Copy hidden states of several batches together.

        Args:
            parts: (hidden, keep, tokens) of each: the rows to take, and to how many tokens
                they may be cut. Rows are padded to the longest part.
        """
        ...
