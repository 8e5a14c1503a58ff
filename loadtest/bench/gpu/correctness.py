"""Is the answer right on this device, and is it far from what fp16 can hold?"""

from typing import Any

import numpy as np

from loadtest.bench.chain import each_segment
from loadtest.bench.gpu.checks import Finding, check_invariance, check_parity, check_texts
from loadtest.bench.gpu.plan import Figures
from loadtest.bench.gpu.subject import Subject
from loadtest.bench.inputs import random_inputs
from serve.engine.runner import ModelRunner

# fp16 ends at 65,504; values between are rounded to multiples of 16.
LARGEST = 20_000.0


def measure_correctness(subject: Subject, figures: Figures, seconds: float) -> None:
    """Compare answers with the CPU's, in batches and alone, and find the largest hidden value."""
    variant, expected = subject.variant, subject.expected
    for check in (
        lambda: check_parity(variant, expected),
        lambda: check_texts(variant, expected),
        lambda: check_invariance(variant, variant.scale.rows),
    ):
        finding = check()
        figures.row("findings", **finding._asdict(), passed=finding.passed)
        if not finding.passed:
            figures.problem(_wrong(finding))
    shape = variant.shapes[-1]
    inputs = random_inputs(shape, variant.vocabulary)
    for name, runner in (("device", variant.chain), ("cpu", expected)):
        figures.add(f"largest_hidden_{name}", _largest(runner, inputs))
    largest = max(figures.found["largest_hidden_device"], default=0.0)
    if not largest <= LARGEST:  # NaN is not below it either
        figures.problem(f"hidden values reach {largest:.0f}; fp16 ends at 65504")


def _largest(runner: ModelRunner, inputs: Any) -> list[float]:
    """Return the largest absolute hidden value after each segment but the last."""
    found = []
    for step in each_segment(runner, inputs):
        if step.hidden is None:
            break
        hidden = step.hidden if isinstance(step.hidden, np.ndarray) else step.hidden.numpy()
        found.append(float(np.abs(hidden.astype(np.float32)).max()))
    return found


def _wrong(finding: Finding) -> str:
    return (
        f"{finding.check}: a logit differs by {finding.max_error:.3g} (at most "
        f"{finding.tolerance:g}; {finding.worst}), {finding.agreement:.2%} of {finding.answers} "
        "answers agree"
    )
