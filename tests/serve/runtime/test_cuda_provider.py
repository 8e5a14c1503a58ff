"""The runner on a real GPU; `python -m loadtest.bench.gpu` does more, on any bundle."""

import numpy as np
import pytest

from loadtest.bench.gpu.variant import (
    TOLERANCE,
    DeviceVariant,
    error_against_cpu,
    error_in_batches,
    load,
    reference,
)
from loadtest.bench.inputs import padded, random_texts
from serve.bundle.loader import Bundle
from serve.runtime import cuda_provider as cuda
from serve.runtime.cuda_runner import CudaRunner
from serve.runtime.placement import build_runner, place
from tests.support.tiny import DEPTH

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda.fault() is not None, reason=f"no CUDA here: {cuda.fault()}"),
]


@pytest.fixture(scope="module", params=["fp16"])
def subject(request: pytest.FixtureRequest, half_bundle: Bundle) -> DeviceVariant:
    return load(half_bundle, request.param, "cuda")


def test_auto_is_the_gpu_and_fp16(half_bundle: Bundle) -> None:
    placement = place(half_bundle, "auto", "auto")
    assert placement == ("cuda", "fp16")
    runner = build_runner(half_bundle, placement, 1)
    assert isinstance(runner, CudaRunner)
    assert runner.device == "cuda"


def test_every_exit_says_what_it_says_on_the_cpu(
    subject: DeviceVariant, half_bundle: Bundle
) -> None:
    assert error_against_cpu(subject, reference(half_bundle)) <= TOLERANCE


def test_answers_do_not_depend_on_company(subject: DeviceVariant) -> None:
    assert error_in_batches(subject, 200) <= TOLERANCE


def test_hidden_states_stay_on_the_gpu(subject: DeviceVariant) -> None:
    batches = [padded(random_texts(n, subject.vocabulary), 0) for n in ([9, 4], [3])]
    steps = [subject.chain.start(*batch) for batch in batches]
    joined = subject.chain.join(
        [
            (s.hidden, np.arange(len(b.input_ids)), b.input_ids.shape[1])
            for s, b in zip(steps, batches, strict=True)
        ]
    )
    assert [hidden.device_name() for hidden in (*(s.hidden for s in steps), joined)] == ["cuda"] * 3


@pytest.mark.parametrize("active", [(DEPTH - 1,), (1, DEPTH - 1)])
def test_queued_segments_give_what_awaited_ones_give(
    subject: DeviceVariant, active: tuple[int, ...]
) -> None:
    ids, mask, _ = padded(random_texts([40, 7, 1], subject.vocabulary), 0)
    should_yield = subject.chain.start(ids, mask, np.zeros_like(ids))
    for index in range(1, DEPTH):
        should_yield = subject.chain.advance(index, should_yield.hidden, np.arange(3), mask)
    # Often, because a race would show only now and then.
    for _ in range(50):
        queued = subject.chain.presenting(active)
        step = queued.start(ids, mask, np.zeros_like(ids))
        for index in range(1, len(active)):
            step = queued.advance(index, step.hidden, np.arange(3), mask)
        np.testing.assert_allclose(step.logits, should_yield.logits, atol=TOLERANCE)
