"""Memory on a CUDA device, through NVIDIA's `cuda-bindings`."""

import ctypes
from typing import Any

import numpy as np

from serve.runtime.device_memory import Block

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
