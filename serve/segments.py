"""A bundle's segments in ONNX Runtime, called one at a time."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

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
from serve.ort_environment import give_back_memory
from serve.runner import Hidden, Ids, Step
from serve.sessions import open_segments


class SegmentChain:
    """A `serve.runner.Runner` over the segments of one precision.

    Neighbouring segments run back to back where the exit between them is not active.
    """

    def __init__(self, bundle: Bundle, precision: Precision, num_threads: int) -> None:
        self.precision = precision
        self._token_types = bundle.manifest.token_types
        said = said_by_heads(bundle.manifest)
        self._segments = open_segments(bundle, precision, num_threads, said)
        give_back_memory()
        self._runs = runs_between(active_segments(bundle.manifest, precision))

    def presenting(self, active: Sequence[int]) -> "SegmentChain":
        """Return the same sessions with fewer exits.

        Args:
            active: indices of the segments, ascending; the last one is among them.
        """
        chain = copy(self)
        chain._runs = runs_between(active)
        return chain

    def __len__(self) -> int:
        return len(self._runs)

    def start(self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids) -> Step:
        inputs = {INPUT_IDS: input_ids, ATTENTION_MASK: attention_mask}
        if self._token_types:
            inputs[TOKEN_TYPE_IDS] = token_type_ids
        return self._run(self._runs[0], inputs)

    def advance(
        self, index: int, hidden: Hidden, keep: NDArray[np.int64], attention_mask: Ids
    ) -> Step:
        inputs = {HIDDEN: hidden, KEEP: keep, ATTENTION_MASK: attention_mask}
        return self._run(self._runs[index], inputs)

    def _run(self, indices: range, inputs: Mapping[str, NDArray[Any]]) -> Step:
        for index in indices[:-1]:
            mask = inputs[ATTENTION_MASK]
            hidden = self._segments[index].pass_on(inputs)
            inputs = {HIDDEN: hidden, KEEP: np.arange(len(mask)), ATTENTION_MASK: mask}
        return self._segments[indices[-1]].run(inputs)

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
