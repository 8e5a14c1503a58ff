"""A bundle's segments as ONNX Runtime sessions, called one at a time."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from serve.bundle import Bundle
from serve.errors import InvalidBundle
from serve.manifest import (
    ATTENTION_MASK,
    HIDDEN,
    HIDDEN_OUT,
    INPUT_IDS,
    KEEP,
    LOGITS,
    TOKEN_TYPE_IDS,
    Precision,
)
from serve.ort_environment import session_options
from serve.runner import Hidden, Ids, Step


class SegmentChain:
    """A `serve.runner.Runner` over the segments of one precision."""

    def __init__(self, bundle: Bundle, precision: Precision, num_threads: int) -> None:
        self.precision = precision
        self._token_types = bundle.manifest.token_types
        options = session_options(num_threads)
        paths = bundle.segment_paths(precision)
        self._segments = [_Segment(p, options, last=p == paths[-1]) for p in paths]

    def __len__(self) -> int:
        return len(self._segments)

    def start(self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids) -> Step:
        inputs = {INPUT_IDS: input_ids, ATTENTION_MASK: attention_mask}
        if self._token_types:
            inputs[TOKEN_TYPE_IDS] = token_type_ids
        return self._segments[0].run(inputs)

    def advance(
        self, index: int, hidden: Hidden, keep: NDArray[np.int64], attention_mask: Ids
    ) -> Step:
        inputs = {HIDDEN: hidden, KEEP: keep, ATTENTION_MASK: attention_mask}
        return self._segments[index].run(inputs)

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        longest = max(tokens for _, _, tokens in parts)
        arrays = [hidden[keep, :tokens] for hidden, keep, tokens in parts]
        padded = [np.pad(a, ((0, 0), (0, longest - a.shape[1]), (0, 0))) for a in arrays]
        return np.concatenate(padded)


class _Segment:
    """One session; hidden states are numpy arrays.

    On a CPU that is the cheapest way to call it: IOBinding costs 13 microseconds more per call,
    `run_with_ort_values` 30.
    """

    def __init__(self, path: Path, options: ort.SessionOptions, last: bool) -> None:
        try:
            self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's errors have no common type
            reason = str(error).splitlines()[0]
            raise InvalidBundle(f"ONNX Runtime cannot load {path}: {reason}") from error
        self._outputs = [LOGITS] if last else [LOGITS, HIDDEN_OUT]

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Step:
        logits, *hidden = self._session.run(self._outputs, inputs)
        return Step(hidden[0] if hidden else None, logits)
