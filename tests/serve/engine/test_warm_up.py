"""The warm-up of a GPU, on a simulated one with a clock of its own."""

from typing import Any

import numpy as np
import pytest

from serve.engine import warm_up
from serve.engine.runner import StepOutput
from serve.engine.scheduler import BatchLimits
from serve.engine.warm_up import SHAPES, measure, on_gpu

LIMITS = BatchLimits(max_rows=512, max_tokens=16_384)
FULL = [(512, 32), (128, 128), (32, 512)]


class Gpu:
    """One segment that takes 0.1 ms, some time per token, and more when it meets a large shape."""

    def __init__(self, per_token_s: float = 1e-7, memory: int = 1_000_000) -> None:
        self.shapes: list[tuple[int, int]] = []
        self.now_s = 0.0
        self._per_token_s, self._memory = per_token_s, memory

    def __len__(self) -> int:
        return 1

    def start(self, ids: np.ndarray, mask: Any, types: Any, until: int = 0) -> StepOutput:
        if ids.size > self._memory:
            raise MemoryError
        if ids.size > 10_000 and ids.shape not in self.shapes:
            self.now_s += 1.3
        self.now_s += 1e-4 + self._per_token_s * ids.size
        self.shapes.append((ids.shape[0], ids.shape[1]))
        return StepOutput(None, np.zeros((len(ids), 2), np.float32))

    def advance(self, *_: Any) -> StepOutput:
        raise AssertionError("there is one segment")

    join = advance


def warmed(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, limits: BatchLimits = LIMITS) -> Any:
    monkeypatch.setattr(warm_up, "perf_counter", lambda: gpu.now_s)
    return measure(gpu, 512, on_gpu(limits))


def test_largest_batches_are_run_and_the_first_of_them_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = Gpu()
    costs = warmed(gpu, monkeypatch)
    assert {*gpu.shapes} >= {*SHAPES, *FULL}
    for rows, tokens in FULL:
        found_s = costs.segment_s(0, rows, tokens)
        assert found_s == pytest.approx(1e-4 + 1e-7 * rows * tokens, rel=0.01)


def test_a_slow_gpu_is_not_warmed_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(per_token_s=1e-3)
    assert warmed(gpu, monkeypatch).segment_s(0, 1, 1) > 0
    assert gpu.now_s < 7


def test_a_batch_that_memory_does_not_suffice_for_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert warmed(Gpu(memory=10_000), monkeypatch).segment_s(0, 1, 1) > 0
    assert caplog.messages[0].startswith("no memory for 512 rows of 32 tokens at once")
