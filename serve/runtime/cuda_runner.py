"""A bundle's segments on a GPU: hidden states stay there, the heads' outputs come to the host."""

from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from serve.bundle.loader import Bundle
from serve.bundle.manifest import (
    ATTENTION_MASK,
    HIDDEN,
    HIDDEN_OUT,
    INPUT_IDS,
    KEEP,
    TOKEN_TYPE_IDS,
    Precision,
)
from serve.engine.batch import arange
from serve.engine.runner import Hidden, Ids, StepOutput
from serve.runtime.cpu_runner import active_segments, head_outputs, runs_between
from serve.runtime.io_binding import QUEUED, Inputs, bound_run, on_device

GRAPHS = Path(__file__).parent / "graphs"
# Names in the graphs there; `export.chain.join_graph` writes them.
PLACES, JOINED = "places", "joined"
_MOST_IN_ORDER = 1024  # rows

OpenSession = Callable[[Path], ort.InferenceSession]
_ELEMENTS: dict[str, type[np.floating[Any]]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
}


class CudaRunner:
    """A `serve.engine.runner.ModelRunner` whose hidden states are `OrtValue`s on the device.

    The segments of one run are queued on one stream, and the host waits only for the logits at the
    end. Heads between them run too, and their outputs are not read.

    Attributes:
        precision: the variant.
        device: where segments run and hidden states lie, as ONNX Runtime calls it.
    """

    def __init__(
        self, bundle: Bundle, precision: Precision, device: str, open_session: OpenSession
    ) -> None:
        """Load every segment.

        Args:
            bundle: to be run.
            precision: the variant.
            device: `cuda`, or `cpu` to try the same code where there is no GPU.
            open_session: opens an ONNX file on that device.
        """
        self.precision = precision
        self.device = device
        self._token_types = bundle.manifest.token_types
        paths, outputs = bundle.segment_paths(precision), head_outputs(bundle.manifest)
        self._segments = [_Bound(open_session(path), device, outputs) for path in paths]
        self._runs = runs_between(active_segments(bundle.manifest, precision))
        self._joiner = _Joiner(open_session, precision, bundle.manifest.width, device)
        self._uploads = _Uploads(device)

    def presenting(self, active: Sequence[int]) -> "CudaRunner":
        """Return the same sessions with fewer exits.

        Args:
            active: indices of the segments, ascending; the last one is among them.
        """
        chain = copy(self)
        chain._runs = runs_between(active)
        return chain

    def __len__(self) -> int:
        return len(self._runs)

    def start(
        self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids, until: int = 0
    ) -> StepOutput:
        inputs = {
            INPUT_IDS: on_device(input_ids, self.device),
            ATTENTION_MASK: self._uploads.mask(attention_mask),
        }
        if self._token_types:
            inputs[TOKEN_TYPE_IDS] = on_device(token_type_ids, self.device)
        return self._run(0, until, inputs)

    def advance(
        self,
        index: int,
        hidden: Hidden,
        keep: NDArray[np.int64],
        attention_mask: Ids,
        until: int | None = None,
    ) -> StepOutput:
        inputs = {
            HIDDEN: hidden,
            KEEP: self._uploads.keep(keep),
            ATTENTION_MASK: self._uploads.mask(attention_mask),
        }
        return self._run(index, index if until is None else until, inputs)

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        return self._joiner.join(parts)

    def _run(self, index: int, until: int, inputs: Inputs) -> StepOutput:
        """Run the segments between two active exits on the same rows."""
        stop = self._runs[until].stop
        *inner, last = self._segments[self._runs[index].start : stop]
        if inner:
            mask = inputs[ATTENTION_MASK]
            every_row = self._uploads.keep(arange(mask.shape()[0]))
            same_rows = {ATTENTION_MASK: mask, KEEP: every_row}
            for segment in inner:
                inputs = {HIDDEN: segment.pass_on(inputs), **same_rows}
        return last.run(inputs, is_last=stop == len(self._segments))


class _Uploads:
    """Masks and choices of rows on the device, kept for the next run: every copy waits for it.

    Rows that go on unchanged have the same mask, and are chosen in order.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._mask: tuple[Ids, ort.OrtValue] | None = None
        self._in_order: dict[int, ort.OrtValue] = {}

    def mask(self, mask: Ids) -> ort.OrtValue:
        """Return a mask there; the array is not written to afterwards."""
        if self._mask is None or self._mask[0] is not mask:
            self._mask = mask, on_device(mask, self._device)
        return self._mask[1]

    def keep(self, keep: NDArray[np.int64]) -> ort.OrtValue:
        """Return a choice of rows there."""
        num = len(keep)
        if num > _MOST_IN_ORDER or not np.array_equal(keep, arange(num)):
            return on_device(keep, self._device)
        if num not in self._in_order:
            self._in_order[num] = on_device(keep, self._device)
        return self._in_order[num]


class _Bound:
    """One segment's session, with inputs and outputs bound to the device."""

    def __init__(self, session: ort.InferenceSession, device: str, head_outputs: list[str]) -> None:
        self._session = session
        self._device = device
        self._head_outputs = dict.fromkeys(head_outputs, "cpu")

    def pass_on(self, inputs: Inputs) -> ort.OrtValue:
        """Queue a run and return hidden states that may not be computed yet."""
        (hidden,) = bound_run(self._session, inputs, {HIDDEN_OUT: self._device}, QUEUED)
        return hidden

    def run(self, inputs: Inputs, is_last: bool) -> StepOutput:
        """Run, and wait for the head's outputs."""
        passed_on = {} if is_last else {HIDDEN_OUT: self._device}
        values = bound_run(self._session, inputs, passed_on | self._head_outputs, None)
        hidden = None if is_last else values.pop(0)
        return StepOutput(hidden, *(value.numpy() for value in values))


class _Joiner:
    """Copies rows of several batches into one tensor on the device."""

    def __init__(
        self, open_session: OpenSession, precision: Precision, width: int, device: str
    ) -> None:
        hidden = "fp16" if precision == "fp16" else "fp32"
        self._session = open_session(GRAPHS / f"join.{hidden}.onnx")
        self._element = _ELEMENTS[self._session.get_outputs()[0].type]
        self._width = width
        self._device = device

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> ort.OrtValue:
        """Return (rows, tokens, width); every part is copied once, to its place.

        A row shorter than the longest part is filled with copies of its own last token.
        """
        longest = max(tokens for _, _, tokens in parts)
        num_rows = sum(len(keep) for _, keep, _ in parts)
        shape = [num_rows, longest, self._width]
        joined = ort.OrtValue.ortvalue_from_shape_and_type(shape, self._element, self._device)
        row_bytes = longest * self._width * np.dtype(self._element).itemsize
        address = joined.data_ptr()
        # All uploads come first, because an upload waits for the copies before it.
        sources = [
            on_device(_places(keep, tokens, longest), self._device) for _, keep, tokens in parts
        ]
        for (hidden, keep, _), source in zip(parts, sources, strict=True):
            self._copy(hidden, source, [len(keep), longest, self._width], address)
            address += len(keep) * row_bytes
        return joined

    def _copy(
        self, hidden: ort.OrtValue, source: ort.OrtValue, shape: list[int], address: int
    ) -> None:
        binding = self._session.io_binding()
        binding.bind_ortvalue_input(HIDDEN, hidden)
        binding.bind_ortvalue_input(PLACES, source)
        binding.bind_output(JOINED, self._device, 0, self._element, shape, address)
        self._session.run_with_iobinding(binding, QUEUED)


def _places(keep: NDArray[np.int64], tokens: int, longest: int) -> NDArray[np.int64]:
    """Return (rows, longest, 2): from which row and token each token is copied."""
    columns = np.minimum(np.arange(longest, dtype=np.int64), tokens - 1)
    return np.stack(np.broadcast_arrays(keep[:, None], columns), axis=-1)
