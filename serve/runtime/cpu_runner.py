"""A bundle's segments in ONNX Runtime, from exit to exit."""

from collections.abc import Sequence
from copy import copy
from typing import Any

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
from serve.engine.runner import Hidden, Ids, StepOutput
from serve.runtime.graph_ports import FIRST_HIDDEN, FIRST_KEEP
from serve.runtime.ort_session import RUN_OPTIONS
from serve.runtime.process_memory import loading_weights
from serve.runtime.sessions import Course, Segments


class CpuRunner:
    """A `serve.engine.runner.ModelRunner` over the segments of one precision.

    Neighbouring segments run back to back where the exit between them is not active.

    Attributes:
        precision: the variant.
    """

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
        self._courses: dict[tuple[int, int], Course] = {}

    def __len__(self) -> int:
        return len(self._active)

    def start(
        self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids, until: int = 0
    ) -> StepOutput:
        inputs = {INPUT_IDS: input_ids, ATTENTION_MASK: attention_mask}
        if self._token_types:
            inputs[TOKEN_TYPE_IDS] = token_type_ids
        return self._run(0, inputs, attention_mask, until)

    def advance(
        self,
        index: int,
        hidden: Hidden,
        keep: NDArray[np.int64],
        attention_mask: Ids,
        until: int | None = None,
    ) -> StepOutput:
        inputs = {FIRST_HIDDEN: hidden, FIRST_KEEP: keep, ATTENTION_MASK: attention_mask}
        return self._run(index, inputs, attention_mask, index if until is None else until)

    def _run(
        self, index: int, inputs: dict[str, NDArray[Any]], mask: Ids, until: int
    ) -> StepOutput:
        rows, tokens = mask.shape
        course = self._courses.get((index, until)) or self._course(index, until)
        inputs.update(course.all_feeds(rows, tokens))
        values = self._session_run(course.outputs, inputs, RUN_OPTIONS)
        hidden = values[0] if course.num_hidden else None
        uncertainty = values[course.num_hidden + 1] if self._learned else None
        return StepOutput(hidden, values[course.num_hidden], uncertainty)

    def _course(self, index: int, until: int) -> Course:
        starts = [run.start for run in runs_between(self._active)]
        to_next = np.full(len(self._segments), np.inf, np.float32)
        to_next[self._active[until]] = 0
        course = self._segments.course(starts[index], to_next)
        return self._courses.setdefault((index, until), course)

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        return join_on_host(parts)


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
