"""A bundle's segments in ONNX Runtime, from exit to exit."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from serve.bundle import Bundle
from serve.manifest import (
    ATTENTION_MASK,
    HIDDEN,
    INPUT_IDS,
    KEEP,
    LOGITS,
    TOKEN_TYPE_IDS,
    UNCERTAINTY,
    Manifest,
    Precision,
)
from serve.process_memory import settle_memory
from serve.runner import Gaps, Hidden, Ids, Step
from serve.sessions import Segments


class SegmentChain:
    """A `serve.runner.PassingRunner` over the segments of one precision.

    Neighbouring segments run back to back where the exit between them is not active.

    Attributes:
        passes: yes, it can go on past an exit by itself.
        precision: the variant.
    """

    passes: Literal[True] = True

    def __init__(self, bundle: Bundle, precision: Precision, num_threads: int) -> None:
        self.precision = precision
        self._token_types = bundle.manifest.token_types
        said = said_by_heads(bundle.manifest)
        self._segments = Segments(bundle, precision, num_threads, said)
        settle_memory()
        self._present(active_segments(bundle.manifest, precision))

    def presenting(self, active: Sequence[int]) -> "SegmentChain":
        """Return the same session with fewer exits.

        Args:
            active: indices of the segments, ascending; the last one is among them.
        """
        chain = copy(self)
        chain._present(active)
        return chain

    def _present(self, active: Sequence[int]) -> None:
        self._active = list(active)
        self._starts = [run.start for run in runs_between(active)]
        self._to_next = np.full(len(self._segments), np.inf, np.float32)
        self._to_next[self._active] = 0

    def __len__(self) -> int:
        return len(self._active)

    def start(
        self,
        input_ids: Ids,
        attention_mask: Ids,
        token_type_ids: Ids,
        gaps: Gaps | None = None,
    ) -> Step:
        inputs = {INPUT_IDS: input_ids, ATTENTION_MASK: attention_mask}
        if self._token_types:
            inputs[TOKEN_TYPE_IDS] = token_type_ids
        return self._run(0, inputs, gaps)

    def advance(
        self,
        index: int,
        hidden: Hidden,
        keep: NDArray[np.int64],
        attention_mask: Ids,
        gaps: Gaps | None = None,
    ) -> Step:
        inputs = {HIDDEN: hidden, KEEP: keep, ATTENTION_MASK: attention_mask}
        return self._run(index, inputs, gaps)

    def _run(self, index: int, inputs: Mapping[str, NDArray[Any]], gaps: Gaps | None) -> Step:
        ends, first = self._to_next, self._starts[index]
        if gaps is not None:
            ends = ends.copy()
            ends[self._active] = gaps
        hidden, said = self._segments.run(first, inputs, ends)
        while (last := first + len(said[0]) - 1) not in self._active:
            # Where a logit is no number, an exit ends the run although nobody asks it.
            mask = inputs[ATTENTION_MASK]
            rows = {HIDDEN: hidden, KEEP: np.arange(len(mask)), ATTENTION_MASK: mask}
            hidden, more = self._segments.run(last + 1, rows, ends)
            said = [np.concatenate(both) for both in zip(said, more, strict=True)]
        step = Step.of(None if last == len(self._segments) - 1 else hidden, [s[-1] for s in said])
        passed = [s - first for s in self._active[index : self._active.index(last)]]
        return step._replace(passed=said[0][passed]) if passed else step

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        return join_on_host(parts)


def join_on_host(parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> NDArray[np.float32]:
    """Copy hidden states that are numpy arrays together; see `serve.runner.Runner.join`."""
    longest = max(tokens for _, _, tokens in parts)
    arrays = [hidden[keep, :tokens] for hidden, keep, tokens in parts]
    padded = [np.pad(a, ((0, 0), (0, longest - a.shape[1]), (0, 0))) for a in arrays]
    return np.concatenate(padded)


def said_by_heads(manifest: Manifest) -> list[str]:
    """Return the outputs of a graph that ends in an exit head, without the hidden states."""
    return [LOGITS, UNCERTAINTY] if manifest.learned else [LOGITS]


def active_segments(manifest: Manifest, precision: Precision) -> list[int]:
    """Return which of a variant's segments end at an exit that is used."""
    segments = manifest.variants[precision].segments
    return [i for i, s in enumerate(segments) if s.exit_layer in manifest.exit_layers]


def runs_between(active: Sequence[int]) -> list[range]:
    """Return, per active exit, the segments from the active exit before it to its own."""
    starts = [0, *(index + 1 for index in active[:-1])]
    return [range(start, index + 1) for start, index in zip(starts, active, strict=True)]
