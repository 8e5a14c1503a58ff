"""The device's memory with a stopwatch: how long copies and waits keep the host."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

from serve.runtime.device_memory import Block, DeviceMemory


class TimedMemory:
    """A `DeviceMemory` that adds up the host's time.

    Attributes:
        device: its name.
        upload_s: in calls that queue a copy to the device.
        wait_s: in waiting for the copy to the host, and so for all runs before it.
        on_download: called once the copy to the host is queued.
    """

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self.device = memory.device
        self.upload_s = self.wait_s = 0.0
        self.on_download: Callable[[], Any] = lambda: None

    def reset(self) -> None:
        """Start again from 0."""
        self.upload_s = self.wait_s = 0.0

    def allocate(self, num_bytes: int) -> Block:
        return self._memory.allocate(num_bytes)

    def free(self, block: Block) -> None:
        self._memory.free(block)

    def upload(self, block: Block, num_bytes: int) -> None:
        began = perf_counter()
        self._memory.upload(block, num_bytes)
        self.upload_s += perf_counter() - began

    def download(self, block: Block, num_bytes: int) -> None:
        self._memory.download(block, num_bytes)
        self.on_download()

    def wait(self, block: Block) -> None:
        began = perf_counter()
        self._memory.wait(block)
        self.wait_s += perf_counter() - began


class DeviceClock:
    """The time between two places in the stream of all sessions, on CUDA's own clock."""

    def __init__(self) -> None:
        from cuda.bindings import runtime

        self._cuda: Any = runtime
        self._marks = [self._call(runtime.cudaEventCreate()) for _ in range(2)]

    def start(self) -> None:
        """Mark the beginning."""
        self._record(0)

    def stop(self) -> None:
        """Mark the end."""
        self._record(1)

    def seconds(self) -> float:
        """Return the time between the marks, once both are passed."""
        self._call(self._cuda.cudaEventSynchronize(self._marks[1]))
        return float(self._call(self._cuda.cudaEventElapsedTime(*self._marks))) / 1000

    def _record(self, mark: int) -> None:
        from serve.runtime.cuda_memory import STREAM

        self._call(self._cuda.cudaEventRecord(self._marks[mark], STREAM))

    def _call(self, returned: tuple[Any, ...]) -> Any:
        status, *values = returned
        if int(status):
            raise RuntimeError(f"CUDA failure {int(status)}")
        return values[0] if values else None
