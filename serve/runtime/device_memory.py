"""Memory on a device, and copies between it and the host.

The runner for GPUs sees only `DeviceMemory`, so that it runs on a CPU as well, copies included.
"""

import ctypes
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

# Alignment of every array in a buffer, in bytes: that of CUDA's own allocations.
ALIGNMENT = 256
_FIRST_BYTES = 1 << 16


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """As many bytes on the host as on the device.

    Attributes:
        host: (bytes,) in memory that can be copied from and to without waiting.
        address: where the bytes lie on the device.
        owned: what the implementation needs to copy and to free them.
    """

    host: NDArray[np.uint8]
    address: int
    owned: Any


class DeviceMemory(Protocol):
    """Copies are queued behind all runs before them, and runs after them behind the copies.

    Attributes:
        device: the device's name in ONNX Runtime.
    """

    device: str

    def allocate(self, num_bytes: int) -> Block:
        """Return memory; raises `MemoryError` or `RuntimeError` if there is none left."""
        ...

    def free(self, block: Block) -> None:
        """Give memory back, once all copies of it have ended."""
        ...

    def upload(self, block: Block, num_bytes: int) -> None:
        """Queue a copy of the first bytes to the device."""
        ...

    def download(self, block: Block, num_bytes: int) -> None:
        """Queue a copy of the first bytes to the host."""
        ...

    def wait(self, block: Block) -> None:
        """Wait until the last copy of the block has ended."""
        ...


class HostMemory:
    """The host as a device: what is not copied is not there."""

    device = "cpu"

    def allocate(self, num_bytes: int) -> Block:
        there = np.zeros(num_bytes + ALIGNMENT, np.uint8)
        there = there[-there.ctypes.data % ALIGNMENT :][:num_bytes]
        return Block(np.zeros(num_bytes, np.uint8), there.ctypes.data, there)

    def free(self, block: Block) -> None:
        pass  # numpy does

    def upload(self, block: Block, num_bytes: int) -> None:
        block.owned[:num_bytes] = block.host[:num_bytes]

    def download(self, block: Block, num_bytes: int) -> None:
        block.host[:num_bytes] = block.owned[:num_bytes]

    def wait(self, block: Block) -> None:
        pass


class Buffer:
    """A block that is exchanged for a larger one as needed, and given back in the end."""

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._block = memory.allocate(_FIRST_BYTES)

    def __del__(self) -> None:
        with suppress(AttributeError, RuntimeError):  # none was had; the device is lost
            self._memory.free(self._block)

    @property
    def address(self) -> int:
        """Where the buffer begins on the device, until more is reserved."""
        return self._block.address

    def reserve(self, num_bytes: int) -> NDArray[np.uint8]:
        """Return the host's bytes, at least so many, once the last copy of them has ended."""
        self._memory.wait(self._block)
        if num_bytes > len(self._block.host):
            larger = max(num_bytes, 2 * len(self._block.host))
            block = self._memory.allocate(larger)  # if there is none left, the old one stays in use
            self._memory.free(self._block)
            self._block = block
        return self._block.host

    def upload(self, num_bytes: int) -> None:
        """Queue a copy of the first bytes to the device."""
        self._memory.upload(self._block, num_bytes)

    def download(self, num_bytes: int) -> None:
        """Queue a copy of the first bytes to the host."""
        self._memory.download(self._block, num_bytes)

    def read(self, num_bytes: int) -> NDArray[np.uint8]:
        """Return the first bytes of the host, once the last copy has ended."""
        self._memory.wait(self._block)
        return self._block.host[:num_bytes]


# Bound for all models of the process together. A step of 128 thousand tokens takes 4 MiB.
MOST_BYTES = 64 << 20
# CUDA's name for its default stream. All sessions and all copies to and from the host run on it, in
# order: a segment need not wait on the host for the hidden states of the segment before, and memory
# that is freed while a kernel reads it is not written before the kernel ends.
STREAM = 0x1


class CudaMemory:
    """Pinned memory on the host, and as much on the first visible device.

    Its bindings are installed where `serve.runtime.cuda_provider` finds no fault.
    """

    device = "cuda"
    _held_bytes = 0  # by all instances

    def __init__(self) -> None:
        from cuda.bindings import runtime

        self._cuda: Any = runtime

    def allocate(self, num_bytes: int) -> Block:
        if CudaMemory._held_bytes + num_bytes > MOST_BYTES:
            raise MemoryError(
                f"out of memory: {num_bytes} more bytes for inputs and logits, of {MOST_BYTES}"
            )
        cuda = self._cuda
        address = self._call(cuda.cudaMalloc(num_bytes))
        try:
            pinned = self._call(cuda.cudaHostAlloc(num_bytes, cuda.cudaHostAllocDefault))
        except RuntimeError:
            self._call(cuda.cudaFree(address))
            raise
        event = self._call(cuda.cudaEventCreateWithFlags(cuda.cudaEventDisableTiming))
        CudaMemory._held_bytes += num_bytes
        host = np.ctypeslib.as_array((ctypes.c_uint8 * num_bytes).from_address(int(pinned)))
        return Block(host, int(address), event)

    def free(self, block: Block) -> None:
        cuda = self._cuda
        self.wait(block)
        self._call(cuda.cudaEventDestroy(block.owned))
        self._call(cuda.cudaFree(block.address))
        self._call(cuda.cudaFreeHost(block.host.ctypes.data))
        CudaMemory._held_bytes -= len(block.host)

    def upload(self, block: Block, num_bytes: int) -> None:
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._copy(block, (block.address, block.host.ctypes.data, num_bytes, kind))

    def download(self, block: Block, num_bytes: int) -> None:
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._copy(block, (block.host.ctypes.data, block.address, num_bytes, kind))

    def wait(self, block: Block) -> None:
        self._call(self._cuda.cudaEventSynchronize(block.owned))

    def _copy(self, block: Block, arguments: tuple[Any, ...]) -> None:
        self._call(self._cuda.cudaMemcpyAsync(*arguments, STREAM))
        self._call(self._cuda.cudaEventRecord(block.owned, STREAM))

    def _call(self, returned: tuple[Any, ...]) -> Any:
        """Return what a call gives, or raise its error in CUDA's own words."""
        status, *values = returned
        if int(status):
            _, said = self._cuda.cudaGetErrorString(status)
            raise RuntimeError(f"CUDA failure {int(status)}: {said.decode()}")
        return values[0] if values else None
