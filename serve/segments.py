"""A bundle's segments as ONNX Runtime sessions, called one at a time."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from serve.bundle import Bundle
from serve.errors import InvalidBundle
from serve.hardware import has_vnni
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


def session_options(num_threads: int) -> ort.SessionOptions:
    """Return options under which many sessions share the cores and the memory in peace.

    Each session has its own pool. With spinning on (the default) the pools of idle segments
    burn the cores that the running one needs. On idle cores short waves pay for it with
    wake-ups; docs/benchmarks.md has both figures.
    """
    _share_memory()
    options = ort.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.use_env_allocators", "1")
    if not has_vnni():
        # Without VNNI the fast int8 kernels saturate; this chooses exact, slower ones.
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 3
    return options


@cache
def _share_memory() -> None:
    """Let the process's sessions work in one arena.

    Alone, each keeps an arena sized for its largest wave: after 32 x 128 tokens the six
    segments of a MiniLM held 1.2 GB, together 0.3, and warm memory is up to 8 % faster.
    """
    arena, default = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, ort.OrtMemType.DEFAULT
    ort.create_and_register_allocator(ort.OrtMemoryInfo("Cpu", arena, 0, default), None)
