"""A bundle's segments in ONNX Runtime, from exit to exit."""

from collections.abc import Sequence
from copy import copy
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.bundle.loader import Bundle
from serve.bundle.manifest import (
    ATTENTION_MASK,
    INPUT_IDS,
    LOGITS,
    TOKEN_TYPE_IDS,
    UNCERTAINTY,
    Manifest,
    Precision,
)
from serve.engine.runner import Gaps, Hidden, Ids, Step
from serve.runtime.graph_ports import FIRST_HIDDEN, FIRST_KEEP
from serve.runtime.ort_session import RUN_OPTIONS
from serve.runtime.process_memory import loading_weights
from serve.runtime.sessions import Course, Segments

# Rules: few at a time. One is soon worked out again.
_MOST_COURSES = 512

_Key: TypeAlias = tuple[int, bytes | None]  # index of the first exit, gaps
# What a run is to do, and how many exits rows have come by wherever it may end.
_RulePlan: TypeAlias = tuple[Course, list[int]]


class CpuRunner:
    """A `serve.engine.runner.PassingRunner` over the segments of one precision.

    Neighbouring segments run back to back where the exit between them is not active.

    Attributes:
        passes: yes, it can go on past an exit by itself.
        precision: the variant.
    """

    passes: Literal[True] = True

    def __init__(self, bundle: Bundle, precision: Precision, num_threads: int) -> None:
        self.precision = precision
        self._token_types = bundle.manifest.token_types
        self._learned = bundle.manifest.learned
        said = said_by_heads(bundle.manifest)
        with loading_weights():
            self._segments = Segments(bundle, precision, num_threads, said)
        self._session_run = self._segments.run
        self._present(active_segments(bundle.manifest, precision))

    def presenting(self, active: Sequence[int]) -> "CpuRunner":
        """Return the same session with fewer exits.

        Args:
            active: indices of the segments, ascending; the last one is among them.
        """
        chain = copy(self)
        chain._present(active)
        return chain

    def _present(self, active: Sequence[int]) -> None:
        self._active = list(active)
        self._courses: dict[_Key, _RulePlan] = {}

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
        return self._run(0, inputs, attention_mask, gaps)

    def advance(
        self,
        index: int,
        hidden: Hidden,
        keep: NDArray[np.int64],
        attention_mask: Ids,
        gaps: Gaps | None = None,
    ) -> Step:
        inputs = {FIRST_HIDDEN: hidden, FIRST_KEEP: keep, ATTENTION_MASK: attention_mask}
        return self._run(index, inputs, attention_mask, gaps)

    def _run(
        self, index: int, inputs: dict[str, NDArray[Any]], mask: Ids, gaps: Gaps | None
    ) -> Step:
        # Short: the weights have driven this code from the caches when a run returns.
        rows, tokens = mask.shape
        key = index, None if gaps is None else gaps.tobytes()
        course, exits = self._courses.get(key) or self._course(key)
        outputs, num_hidden = course.outputs, course.num_hidden
        inputs.update(course.all_feeds(rows, tokens))
        values = self._session_run(outputs, inputs, RUN_OPTIONS)
        logits = values[num_hidden]
        if len(logits) == rows:
            hidden = values[0] if num_hidden else None
            uncertainty = values[num_hidden + 1] if self._learned else None
            return Step(hidden, logits, uncertainty, exits[0])
        return _several(values, num_hidden, rows, exits)

    def _course(self, key: _Key) -> _RulePlan:
        """Return what runs are to do; worked out once for many."""
        index, gaps = key
        starts = [run.start for run in runs_between(self._active)]
        to_next = np.full(len(self._segments), np.inf, np.float32)
        to_next[self._active] = 0 if gaps is None else np.frombuffer(gaps, np.float32)
        course = self._segments.course(starts[index], to_next)
        if len(self._courses) >= _MOST_COURSES:
            self._courses.clear()
        exits = [1 + self._active.index(end) - index for end in course.ends]
        return self._courses.setdefault(key, (course, exits))

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        return join_on_host(parts)


def _several(
    values: Sequence[NDArray[Any]], num_hidden: int, rows: int, exits: Sequence[int]
) -> Step:
    """Return what came of a run in which more than one head was asked.

    Args:
        values: what `serve.runtime.sessions.Segments.run` gave.
        num_hidden: how many of them are hidden states.
        rows: of the run.
        exits: how many exits rows have come by at each end of the course.
    """
    heads = len(values[num_hidden]) // rows
    hidden = values[heads - 1] if heads <= num_hidden else None
    logits, *more = (value.reshape(heads, rows, *value.shape[1:]) for value in values[num_hidden:])
    uncertainty = more[0][-1] if more else None
    return Step(hidden, logits[-1], uncertainty, exits[heads - 1], logits[:-1])


def join_on_host(parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> NDArray[np.float32]:
    """Copy hidden states that are numpy arrays together; see `serve.engine.runner.Runner.join`."""
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
