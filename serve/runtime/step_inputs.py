"""What a step of a GPU reads from the host: one buffer, copied once."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from serve.bundle.manifest import ATTENTION_LENGTHS, LENGTHS, SHARES
from serve.engine.runner import Ids
from serve.runtime.device_memory import ALIGNMENT, Buffer, DeviceMemory


class _Placed(NamedTuple):
    """An array in the buffer."""

    element: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int  # in bytes


class StepInputs:
    """The inputs of the next runs, on the device.

    Copies are ordered with runs, so the buffer may be written to again while runs are queued.
    """

    def __init__(
        self, memory: DeviceMemory, read: Collection[str], share: type[np.floating[Any]]
    ) -> None:
        """Reserve memory for inputs that some graph reads, with shares of this element type."""
        self._device = memory.device
        self._buffer = Buffer(memory)
        self._read, self._share = frozenset(read), share
        self._mask: Ids | None = None
        self._placed: dict[str, _Placed] = {}

    def load(self, mask: Ids, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Copy a step's inputs to the device, in one copy.

        Rows that go on unchanged need nothing else than the step before: then nothing is copied.

        Args:
            mask: (rows, tokens), 1 for real tokens; not written to afterwards.
            arrays: further inputs, by name.
        """
        if not arrays and mask is self._mask:
            return
        self._mask = None
        arrays = {**arrays, **self._of_mask(mask)}
        self._placed, end = {}, 0
        for name, array in arrays.items():
            self._placed[name] = _Placed(array.dtype, array.shape, end)
            end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        host = self._buffer.reserve(end)
        for name, array in arrays.items():
            _, shape, offset = self._placed[name]
            room = host[offset : offset + array.nbytes]
            room.view(array.dtype).reshape(shape)[...] = array
        if ATTENTION_LENGTHS in arrays:  # it begins with the lengths
            same = self._placed[ATTENTION_LENGTHS]
            self._placed[LENGTHS] = same._replace(shape=(len(mask),))
        self._buffer.upload(end)
        self._mask = mask

    def bind(self, binding: ort.IOBinding, name: str) -> None:
        """Give an input to the next run of a session."""
        element, shape, offset = self._placed[name]
        address = self._buffer.address + offset
        binding.bind_input(name, self._device, 0, element, list(shape), address)

    def _of_mask(self, mask: Ids) -> dict[str, NDArray[Any]]:
        lengths = mask.sum(axis=1, dtype=np.int32)
        arrays: dict[str, NDArray[Any]] = {}
        if self._read & {LENGTHS, ATTENTION_LENGTHS}:
            arrays[ATTENTION_LENGTHS] = attention_lengths(lengths, mask.shape[1], self._device)
        if SHARES in self._read:
            arrays[SHARES] = shares(mask, lengths).astype(self._share)
        return arrays


def shares(mask: Ids, lengths: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return (rows, tokens, 1): one divided by the row's length at tokens, 0 at padding.

    Args:
        mask: (rows, tokens), 1 for real tokens.
        lengths: (rows,) tokens of each row.
    """
    each = 1 / np.maximum(lengths, 1, dtype=np.float32)
    of_tokens: NDArray[np.float32] = np.where(mask != 0, each[:, None], np.float32(0))
    return of_tokens[:, :, None]


def attention_lengths(
    lengths: NDArray[np.int32], num_tokens: int, device: str
) -> NDArray[np.int32]:
    """Return lengths in the form that attention is given.

    ONNX Runtime's memory-efficient kernel on CUDA wants (3 x rows + 2,): the lengths, where each
    row's queries begin and the last one's end, and the same of keys. Rows are padded, so they begin
    at multiples of the number of tokens. On a CPU attention takes (rows,) lengths; it would read
    the longer form wrongly.

    Args:
        lengths: (rows,) tokens of each row.
        num_tokens: tokens of each row, padding included.
        device: the device's name in ONNX Runtime.
    """
    if device == "cpu":
        return lengths
    starts = np.arange(len(lengths) + 1, dtype=np.int32) * np.int32(num_tokens)
    return np.concatenate([lengths, starts, starts])
