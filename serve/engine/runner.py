"""What the engine needs of whatever runs the segments."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

Ids: TypeAlias = NDArray[np.int64]  # (rows, tokens)
Hidden: TypeAlias = Any  # (rows, tokens, width), wherever the runner keeps it
Gaps: TypeAlias = NDArray[np.float32]  # (exits,)

# The gap of an exit that is to say something, but does not end the run: no logits lie so far apart.
ASKED: Final = np.finfo(np.float32).max
# The gap of an exit at which all rows leave, whatever it says: hidden states are of no use then.
LEAVES: Final = np.float32(-1)


class Step(NamedTuple):
    """What a segment gives; of several that have run in one call, the last.

    Attributes:
        hidden: hidden states for the next segment; None after the last, and perhaps where the gap
            is `LEAVES`.
        logits: (rows, labels) float32; of token classification (rows, tokens, labels).
        uncertainty: (rows,) float32, the heads' own predicted error, if they give it.
        exits: how many exits the rows have come by in this call, that of the logits included.
        passed: (exits asked, rows, ...) the logits of those before it which were asked; None if
            there is none.
    """

    hidden: Hidden
    logits: NDArray[np.float32]
    uncertainty: NDArray[np.float32] | None = None
    exits: int = 1
    passed: NDArray[np.float32] | None = None

    @classmethod
    def of(cls, hidden: Hidden, said: Iterable[NDArray[np.float32]]) -> "Step":
        """Return a step of one segment with what the head's outputs are, logits first."""
        logits, *more = said
        return cls(hidden, logits, more[0] if more else None)


class Runner(Protocol):
    """Segments, first to last; for one caller at a time."""

    def __len__(self) -> int:
        """Number of segments."""
        ...

    def start(self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids) -> Step:
        """Run the first segment on padded ids, all (rows, tokens)."""
        ...

    def advance(
        self, index: int, hidden: Hidden, keep: NDArray[np.int64], attention_mask: Ids
    ) -> Step:
        """Run segment `index` (1 or more) on some rows of what the segment before it gave.

        Args:
            index: which segment, counted from 0.
            hidden: (rows_in, tokens_in, width).
            keep: (rows,) which rows of `hidden` go on, in this order.
            attention_mask: (rows, tokens), tokens <= tokens_in; the rest is cut off.
        """
        ...

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        """Copy hidden states together.

        Args:
            parts: (hidden, keep, tokens) each: the rows to take, and to how many tokens
                they may be cut. Rows are padded to the longest part.
        """
        ...


class PassingRunner(Runner, Protocol):
    """Segments that need not come back to the host at an exit where rows surely stay."""

    passes: Literal[True]

    def start(
        self,
        input_ids: Ids,
        attention_mask: Ids,
        token_type_ids: Ids,
        gaps: Gaps | None = None,
    ) -> Step:
        """Run the first segment, as `Runner.start`, and go on where `gaps` let it.

        Args:
            input_ids: (rows, tokens).
            attention_mask: (rows, tokens).
            token_type_ids: (rows, tokens).
            gaps: it goes on after an exit if the two largest logits of every row lie closer
                together than this; never with 0, nor with `LEAVES`, one of which it must be at the
                last. With infinity it always does, and the exit is not even asked; see `ASKED`.
                None is 0 everywhere.
        """
        ...

    def advance(
        self,
        index: int,
        hidden: Hidden,
        keep: NDArray[np.int64],
        attention_mask: Ids,
        gaps: Gaps | None = None,
    ) -> Step:
        """Run segment `index`, as `Runner.advance`, and go on as `start` does."""
        ...


class MixedRunner(Protocol):
    """One layer that all layers are; rows at different depths run through it together."""

    shared: bool

    def __len__(self) -> int:
        """Number of layers: how often a row runs that never leaves."""
        ...

    def start(self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids) -> Step:
        """Return padded ids' hidden states before layer 1, and logits that are all NaN."""
        ...

    def advance_mixed(
        self,
        depths: NDArray[np.int64],
        hidden: Hidden,
        keep: NDArray[np.int64],
        attention_mask: Ids,
    ) -> Step:
        """Run the layer on some rows of hidden states.

        Args:
            depths: (rows,) layers each row has been through, in the order of `keep`.
            hidden: as for `Runner.advance`; so are the others.
            keep: (rows,).
            attention_mask: (rows, tokens).

        Returns:
            Hidden states, and each row's logits from the head after its layer; NaN where there
            is no head.
        """
        ...

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        """Copy hidden states together, as `Runner.join`."""
        ...


AnyRunner: TypeAlias = Runner | MixedRunner


def passes_exits(runner: Runner) -> TypeGuard[PassingRunner]:
    """Tell whether the runner can go on past an exit by itself."""
    return getattr(runner, "passes", False)


def mixes_depths(runner: AnyRunner) -> TypeGuard[MixedRunner]:
    """Tell whether all layers are one, so that rows at any depths may run together."""
    return getattr(runner, "shared", False)
