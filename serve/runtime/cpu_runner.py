"""A bundle's segments on a CPU: one session over the joined graph."""

from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.bundle.loader import Bundle
from serve.bundle.manifest import (
    ATTENTION_MASK,
    FIRST,
    HIDDEN,
    INPUT_IDS,
    KEEP,
    LOGITS,
    TOKEN_TYPE_IDS,
    UNCERTAINTY,
    UNTIL,
    Manifest,
    Precision,
    hidden_after,
)
from serve.engine.runner import Hidden, Ids, StepOutput
from serve.runtime.ort_session import (
    AWAKE_S,
    RUN_OPTIONS,
    open_session,
    quick_run,
    session_options,
)
from serve.runtime.process_memory import settle_memory


class _End(NamedTuple):
    """What runs that end at one exit have in common.

    Attributes:
        until: the exit's segment, a scalar.
        outputs: names to ask the session for.
        passes_on: whether the first of them is the hidden states.
    """

    until: NDArray[np.int64]
    outputs: list[str]
    passes_on: bool


class CpuRunner:
    """A `serve.engine.runner.ModelRunner` over the joined graph of one precision.

    Hidden states are numpy arrays. On a CPU that is the cheapest way to call a session: IOBinding
    costs 13 microseconds more per call, `run_with_ort_values` 30.

    Attributes:
        precision: the variant.
    """

    def __init__(self, bundle: Bundle, precision: Precision, num_threads: int) -> None:
        """Open the session, with so many threads, the caller's included.

        Raises:
            InvalidBundle: ONNX Runtime cannot load the graph.
        """
        manifest = bundle.manifest
        self.precision = precision
        self._token_types = manifest.token_types
        self._head_outputs = head_outputs(manifest)
        self._num_segments = len(manifest.variants[precision].segments)
        options = session_options(num_threads, AWAKE_S)
        self._session = open_session(bundle.joined_path(precision), options)
        settle_memory()
        self._session_run = quick_run(self._session)
        self._present(active_segments(manifest, precision))

    def presenting(self, active: Sequence[int]) -> "CpuRunner":
        """Return the same session with exits after these segments only; see `runs_between`."""
        runner = copy(self)
        runner._present(active)
        return runner

    def _present(self, active: Sequence[int]) -> None:
        runs = runs_between(active)
        self._firsts = [np.array(run.start, np.int64) for run in runs]
        self._ends = [self._end(run.stop - 1) for run in runs]

    def _end(self, segment: int) -> _End:
        passes_on = segment < self._num_segments - 1
        hidden = [hidden_after(segment)] if passes_on else []
        return _End(np.array(segment, np.int64), [*hidden, *self._head_outputs], passes_on)

    def __len__(self) -> int:
        return len(self._ends)

    def start(
        self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids, until: int = 0
    ) -> StepOutput:
        inputs = {INPUT_IDS: input_ids, ATTENTION_MASK: attention_mask}
        if self._token_types:
            inputs[TOKEN_TYPE_IDS] = token_type_ids
        return self._run(until, inputs)

    def advance(
        self,
        index: int,
        hidden: Hidden,
        keep: NDArray[np.int64],
        attention_mask: Ids,
        until: int | None = None,
    ) -> StepOutput:
        first = self._firsts[index]
        inputs = {HIDDEN: hidden, KEEP: keep, ATTENTION_MASK: attention_mask, FIRST: first}
        return self._run(index if until is None else until, inputs)

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        return join_on_host(parts)

    def _run(self, exit_index: int, inputs: dict[str, NDArray[Any]]) -> StepOutput:
        # Short: when a run returns, the weights have driven this code from the caches.
        until, outputs, passes_on = self._ends[exit_index]
        inputs[UNTIL] = until
        values = self._session_run(outputs, inputs, RUN_OPTIONS)
        return StepOutput(values.pop(0) if passes_on else None, *values)


def join_on_host(parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> NDArray[np.float32]:
    """Copy hidden states that are numpy arrays together, see `ModelRunner.join`."""
    longest = max(tokens for _, _, tokens in parts)
    arrays = [hidden[keep, :tokens] for hidden, keep, tokens in parts]
    padded = [np.pad(a, ((0, 0), (0, longest - a.shape[1]), (0, 0))) for a in arrays]
    return np.concatenate(padded)


def head_outputs(manifest: Manifest) -> list[str]:
    """Return the outputs of an exit head."""
    return [LOGITS, UNCERTAINTY] if manifest.learned else [LOGITS]


def active_segments(manifest: Manifest, precision: Precision) -> list[int]:
    """Return which of a variant's segments end at an active exit."""
    segments = manifest.variants[precision].segments
    return [i for i, s in enumerate(segments) if s.exit_layer in manifest.exit_layers]


def runs_between(active: Sequence[int]) -> list[range]:
    """Return, per active exit, the segments from the active exit before it to its own.

    `active` has the indices of the segments at whose end they are, ascending, the last included.
    """
    starts = [0, *(index + 1 for index in active[:-1])]
    return [range(start, index + 1) for start, index in zip(starts, active, strict=True)]
