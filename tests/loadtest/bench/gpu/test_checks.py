"""Wrong answers and values near the end of fp16 are seen."""

from typing import Any

import numpy as np
import pytest

from loadtest.bench.gpu import correctness
from loadtest.bench.gpu.bound_graph import WholeModel
from loadtest.bench.gpu.checks import check_invariance, check_parity, check_texts
from loadtest.bench.gpu.device_variant import DeviceVariant
from loadtest.bench.gpu.plan import Figures
from loadtest.bench.gpu.subject import Subject
from loadtest.bench.inputs import padded, random_texts
from serve.engine.runner import StepOutput


def figures() -> Figures:
    return Figures({}, [], lambda: None)


def test_answers_that_depend_on_the_batch_are_found(
    half: DeviceVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = type(half.chain).start

    def leaky(*arguments: object) -> StepOutput:
        step = start(*arguments)  # type: ignore[arg-type]
        return step._replace(logits=step.logits + len(step.logits) - 1)

    assert check_invariance(half, 40).passed
    monkeypatch.setattr(type(half.chain), "start", leaky)
    finding = check_invariance(half, 40)
    assert finding.max_error > 0.5
    assert not finding.passed


@pytest.mark.parametrize("wrong", [np.nan, 0.2])
@pytest.mark.parametrize("check", [check_parity, check_texts])
def test_other_logits_are_no_parity(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, check: Any, wrong: float
) -> None:
    half = subject.variant
    start = type(half.chain).start

    def broken(*arguments: object) -> StepOutput:
        step = start(*arguments)  # type: ignore[arg-type]
        return step._replace(logits=step.logits + np.float32(wrong))

    assert check(half, subject.expected).passed
    monkeypatch.setattr(type(half.chain), "start", broken)
    assert not check(half, subject.expected).passed


def test_hidden_values_near_the_end_of_fp16_are_a_problem(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = figures()
    correctness.measure_correctness(subject, found, 1.0)
    assert "problems" not in found.found
    assert len(found.found["largest_hidden_device"]) == 3
    monkeypatch.setattr(correctness, "LARGEST", 1.0)
    correctness.measure_correctness(subject, found, 1.0)
    (said,) = found.found["problems"]
    assert said.startswith("hidden values reach ")


def test_the_whole_model_as_one_graph_answers_as_its_segments(subject: Subject) -> None:
    half = subject.variant
    assert subject.one_graph
    whole = WholeModel(half, half.place.opener()(subject.one_graph))
    last = half.chain.presenting((len(half.chain) - 1,))
    for lengths in ([9, 4, 17], [3]):
        inputs = padded(random_texts(lengths, half.vocabulary), 0)
        np.testing.assert_allclose(whole.run(inputs), last.start(*inputs).logits, atol=1e-4)
