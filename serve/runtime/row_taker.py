"""Chooses rows of hidden states, cuts padding and joins batches, on the device."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from serve.bundle.manifest import HIDDEN
from serve.engine.batch import arange
from serve.engine.runner import Hidden, Ids
from serve.runtime.device_memory import Buffer, DeviceMemory
from serve.runtime.ort_session import OpenSession, run_queued
from serve.runtime.step_inputs import StepInputs

GRAPHS = Path(__file__).parent / "graphs"
# Names in the graphs there; `export.chain.take_graph` writes them.
PLACES, TAKEN = "places", "taken"


class RowTaker:
    """Copies tokens of hidden states to new places.

    The copies lie in ONNX Runtime's own memory, under its limit.
    """

    def __init__(
        self,
        open_session: OpenSession,
        memory: DeviceMemory,
        element: type[np.floating[Any]],
        width: int,
    ) -> None:
        self._session = open_session(GRAPHS / f"take.{element.__name__}.onnx")
        self._element, self._width = element, width
        self._device = memory.device
        self._buffer = Buffer(memory)

    def take(self, hidden: Hidden, inputs: StepInputs) -> ort.OrtValue:
        """Return (rows, tokens, width), from the places among the step's inputs."""
        binding = self._binding(hidden)
        inputs.bind(binding, PLACES)
        return self._run(binding)

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> ort.OrtValue:
        """Return the rows of all parts, (rows, tokens, width); every part is copied once.

        A row shorter than the longest part is filled with copies of its own last token.
        """
        longest = max(tokens for _, _, tokens in parts)
        each = [
            _places(keep, hidden.shape()[1], np.minimum(arange(longest), tokens - 1))
            for hidden, keep, tokens in parts
        ]
        # The first run makes room for all rows. What it writes behind its own is overwritten.
        rest = np.zeros((sum(map(len, each[1:])), longest), np.int32)
        places = np.concatenate([each[0], rest, *each[1:]])
        self._buffer.reserve(places.nbytes)[: places.nbytes] = places.reshape(-1).view(np.uint8)
        self._buffer.upload(places.nbytes)
        num_rows = len(each[0]) + len(rest)
        joined = self._run(self._placed(parts[0][0], 0, (num_rows, longest)))
        row_bytes = longest * self._width * np.dtype(self._element).itemsize
        row = len(each[0])
        for (hidden, _, _), own in zip(parts[1:], each[1:], strict=True):
            binding = self._placed(hidden, (len(rest) + row) * longest, own.shape)
            shape = [*own.shape, self._width]
            address = joined.data_ptr() + row * row_bytes
            binding.bind_output(TAKEN, self._device, 0, self._element, shape, address)
            run_queued(self._session, binding)
            row += len(own)
        return joined

    def _placed(self, hidden: Hidden, first: int, shape: tuple[int, ...]) -> ort.IOBinding:
        """Bind hidden states, and places from the one numbered `first` among all parts'."""
        binding = self._binding(hidden)
        address = self._buffer.address + first * np.dtype(np.int32).itemsize
        binding.bind_input(PLACES, self._device, 0, np.int32, list(shape), address)
        return binding

    def _binding(self, hidden: Hidden) -> ort.IOBinding:
        binding = self._session.io_binding()
        rows, tokens, width = hidden.shape()
        binding.bind_input(
            HIDDEN, self._device, 0, self._element, [rows * tokens, width], hidden.data_ptr()
        )
        return binding

    def _run(self, binding: ort.IOBinding) -> ort.OrtValue:
        binding.bind_output(TAKEN, self._device)
        (taken,) = run_queued(self._session, binding)
        return taken


def places_of(hidden: Hidden, keep: NDArray[np.int64], num_tokens: int) -> NDArray[np.int32] | None:
    """Return from where each token of the rows that go on is taken; None if nothing changes.

    Args:
        hidden: (rows_in, tokens_in, width) on the device.
        keep: (rows,) which rows go on.
        num_tokens: length to which the rows are cut.

    Returns:
        (rows, num_tokens), counted over all tokens of `hidden`.
    """
    rows, tokens, _ = hidden.shape()
    if tokens == num_tokens and np.array_equal(keep, arange(rows)):
        return None
    return _places(keep, tokens, arange(num_tokens))


def _places(keep: NDArray[np.int64], tokens_in: int, columns: Ids) -> NDArray[np.int32]:
    return (keep[:, None] * tokens_in + columns).astype(np.int32)
