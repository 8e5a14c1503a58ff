"""Segments that misbehave on purpose, around a real (tiny) model's."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from serve.bundle.loader import Bundle
from serve.engine import core
from serve.engine.core import EngineCore
from serve.engine.device_errors import device_lost, out_of_memory
from serve.engine.row import Answer, Row
from serve.engine.runner import QueuedOutput, StepOutput
from serve.engine.scheduler import BatchLimits
from serve.engine.shape import ModelShape
from serve.errors import ModelFailure
from serve.rules import EntropyRule, ExitRule, LayerRule
from serve.rules.criterion import HeadOutput
from serve.rules.judge import Decision, RuleState, judge
from serve.runtime.cpu_runner import CpuRunner
from tests.serve.support.lost_device import ILLEGAL_ADDRESS
from tests.support.tiny import DEPTH

LIMITS = BatchLimits()  # of each test's core, by `in_flight`
ASKED = EntropyRule(threshold=0)  # a row stops at every exit and leaves at the last
NO_MEMORY = (
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running "
    "MatMul node. bfc_arena.cc:376 Failed to allocate memory for requested buffer of size 9437184"
)


Fault = Callable[[int, int, StepOutput], StepOutput]


class Late(NamedTuple):
    """A run whose fault shows when it is read."""

    step: StepOutput
    fault: Callable[[StepOutput], StepOutput]

    @property
    def hidden(self) -> Any:
        return self.step.hidden

    @property
    def logits(self) -> Any:
        return self.fault(self.step).logits

    @property
    def uncertainty(self) -> Any:
        return self.step.uncertainty


class Faulty:
    """A chain that does `fault(index, number of rows, step)` after each segment.

    `late`: not before the output is read, as on a device.
    """

    def __init__(self, chain: CpuRunner, fault: Fault, late: bool = False) -> None:
        self._chain, self._fault, self._late = chain, fault, late
        self.runs: list[tuple[int, int]] = []
        self.num_retried = 0  # by the engine

    def __len__(self) -> int:
        return len(self._chain)

    def start(self, ids: Any, mask: Any, types: Any, until: int = 0) -> QueuedOutput:
        return self._after(until, len(mask), self._chain.start(ids, mask, types, until))

    def advance(self, index: int, hidden: Any, keep: Any, mask: Any, until: int) -> QueuedOutput:
        output = self._chain.advance(index, hidden, keep, mask, until)
        return self._after(until, len(mask), output)

    def join(self, parts: Any) -> Any:
        return self._chain.join(parts)

    def _after(self, index: int, num_rows: int, step: StepOutput) -> QueuedOutput:
        self.runs.append((index, num_rows))
        if self._late:
            return Late(step, partial(self._fault, index, num_rows))
        return self._fault(index, num_rows, step)


@pytest.fixture(autouse=True, params=(1, 2))
def in_flight(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = BatchLimits(max_tokens=64, in_flight=request.param)
    monkeypatch.setattr(sys.modules[__name__], "LIMITS", limits)


@pytest.fixture(scope="module")
def chain(bundle: Bundle) -> CpuRunner:
    return CpuRunner(bundle, "fp32", num_threads=1)


def answers(
    bundle: Bundle, runner: Any, lengths: list[int], rule: ExitRule = ASKED
) -> dict[int, Any]:
    shape = ModelShape(bundle.manifest.traits, (1.0,) * DEPTH, bundle.manifest.pad_id)
    core = EngineCore(runner, shape, LIMITS, clock=lambda: 0.0, observe=lambda stats: None)
    core.add(
        [
            Row(ids := np.arange(5, 5 + n), 0 * ids, shape.compile(rule), tag=tag, admitted_s=0.0)
            for tag, n in enumerate(lengths)
        ]
    )
    results = {}
    while core:
        for row, result in core.step():
            assert row.tag not in results
            results[row.tag] = result
    if isinstance(runner, Faulty):
        runner.num_retried = core.num_retried
    return results


@pytest.mark.parametrize("late", [False, True])
def test_a_segment_that_raises_fails_its_batches_rows_only(
    bundle: Bundle, chain: CpuRunner, late: bool
) -> None:
    def fault(index: int, num_rows: int, step: StepOutput) -> StepOutput:
        if index == 2 and num_rows == 3:
            raise RuntimeError("a kernel failed")
        return step

    results = answers(bundle, Faulty(chain, fault, late), [6, 6, 6, 60])
    assert all(isinstance(results[tag], ModelFailure) for tag in (0, 1, 2))
    assert isinstance(results[3], Answer)


@pytest.mark.parametrize("first_short", range(DEPTH))
def test_a_batch_too_large_for_the_memory_is_split_and_tried_again(
    bundle: Bundle, chain: CpuRunner, first_short: int
) -> None:
    def fault(index: int, num_rows: int, step: StepOutput) -> StepOutput:
        if index >= first_short and num_rows > 2:
            raise RuntimeError(NO_MEMORY)
        return step

    lengths = [6, 4, 5, 6]
    runner = Faulty(chain, fault)
    results = answers(bundle, runner, lengths)
    expected = answers(bundle, chain, lengths)
    short = [index for index, rows in runner.runs if index >= first_short and rows > 2]
    assert runner.num_retried == len(short) > 0
    for tag, answer in expected.items():
        assert isinstance(results[tag], Answer)
        np.testing.assert_allclose(results[tag].logits, answer.logits, atol=1e-5)


def test_logits_that_cannot_be_judged_fail_their_batches_rows_only(
    bundle: Bundle, chain: CpuRunner
) -> None:
    def fault(index: int, num_rows: int, step: StepOutput) -> StepOutput:
        broken = index == 1 and num_rows == 3
        return StepOutput(step.hidden, step.logits[:, :0]) if broken else step

    results = answers(bundle, Faulty(chain, fault), [6, 6, 6, 60], EntropyRule(threshold=0.01))
    assert all(isinstance(results[tag], ModelFailure) for tag in (0, 1, 2))
    assert isinstance(results[3], Answer)


def test_no_exit_is_skipped_where_judging_runs_out_of_memory(
    bundle: Bundle, chain: CpuRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(state: RuleState, head: HeadOutput, index: int, *model: Any) -> Decision:
        if index == 1 and len(state.kind) == 3:
            raise MemoryError
        return judge(state, head, index, *model)

    monkeypatch.setattr(core, "judge", short)
    runner = Faulty(chain, lambda index, num_rows, step: step)
    results = answers(bundle, runner, [6, 6, 6], LayerRule(layer=2))
    assert all(isinstance(results[tag], ModelFailure) for tag in range(3))
    assert max(index for index, _ in runner.runs) == 1, "none goes past the exit it is to leave at"


def test_a_half_that_is_too_large_too_is_given_up(bundle: Bundle, chain: CpuRunner) -> None:
    def fault(index: int, num_rows: int, step: StepOutput) -> StepOutput:
        if index == 1 and num_rows > 1:
            raise MemoryError
        return step

    runner = Faulty(chain, fault)
    results = answers(bundle, runner, [6, 6, 6])
    assert [isinstance(results[tag], Answer) for tag in range(3)] == [True, False, False]
    assert runner.runs.count((1, 2)) == 1


def test_a_row_that_is_too_large_alone_is_given_up(bundle: Bundle, chain: CpuRunner) -> None:
    def fault(index: int, num_rows: int, step: StepOutput) -> StepOutput:
        raise MemoryError

    assert isinstance(answers(bundle, Faulty(chain, fault), [6])[0], ModelFailure)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (NO_MEMORY, True),
        ("CUDA failure 2: out of memory ; GPU=0", True),
        ("std::bad_alloc", True),
        ("Available memory of 123 is smaller than requested bytes of 456", True),
        ("CUDA_ERROR_OUT_OF_MEMORY", True),
        ("Memory allocation failed. Size=4096", True),
        ("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED", True),
        ("CUDNN failure: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", True),
        ("Got invalid dimensions for input: hidden", False),
    ],
)
def test_out_of_memory_is_told_by_what_the_runtime_says(said: str, expected: bool) -> None:
    assert out_of_memory(RuntimeError(said)) is expected
    assert not device_lost(RuntimeError(said))


@pytest.mark.parametrize(
    "said",
    [
        f"[ONNXRuntimeError] : 1 : FAIL : {ILLEGAL_ADDRESS}",
        "CUDA failure 719: unspecified launch failure ; GPU=0",
        "CUDA failure 214: uncorrectable ECC error encountered ; GPU=0",
        "CUDA failure 700: an illegal memory access ; expr=cudaMalloc; Failed to allocate memory",
        "CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED ; GPU=0",
        "CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED ; GPU=0",
        "CUDA error cudaErrorIllegalAddress:an illegal memory access was encountered",
    ],
)
def test_a_lost_device_is_told_by_what_the_runtime_says(said: str) -> None:
    assert device_lost(RuntimeError(said))
    assert not out_of_memory(RuntimeError(said))


@pytest.mark.parametrize("lengths", [[6], [6, 6]], ids=["alone", "in a batch"])
@pytest.mark.parametrize("late", [False, True])
def test_no_engine_goes_on_without_its_device(
    bundle: Bundle, chain: CpuRunner, late: bool, lengths: list[int]
) -> None:
    def fault(index: int, num_rows: int, step: StepOutput) -> StepOutput:
        raise RuntimeError(ILLEGAL_ADDRESS)

    with pytest.raises(RuntimeError, match="CUDA failure 700"):
        answers(bundle, Faulty(chain, fault, late), lengths)
