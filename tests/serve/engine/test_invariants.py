"""DESIGN's promises about answers, on a real (tiny) model through the real engine core."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.engine.core import EngineCore
from serve.engine.executor import ModelShape
from serve.engine.row import Answer, Row
from serve.engine.runner import ModelRunner
from serve.engine.scheduler import BatchLimits
from serve.rules import ExitRule, LayerRule, NeverRule
from serve.rules.reason import Reason
from serve.runtime.placement import Placement, build_runner
from tests.support.tiny import DEPTH, MAX_TOKENS, SPECIAL, WORDS, Family, tiny_model

# What a row's logits may differ by when its batch mates, padding or order change.
TOLERANCE = 1e-4
KINDS: tuple[tuple[Family, Precision], ...] = (
    ("bert", "fp32"),
    ("bert", "int8"),
    ("albert", "fp32"),
    ("albert", "int8"),
)

Ids = NDArray[np.int64]
Runners = dict[tuple[Family, Precision], ModelRunner]


@pytest.fixture(scope="module")
def runners(bundle: Bundle, shared_bundle: Bundle) -> Runners:
    folders = {"bert": bundle, "albert": shared_bundle}
    return {kind: build_runner(folders[kind[0]], Placement("cpu", kind[1]), 1) for kind in KINDS}


def new_core(
    bundle: Bundle, runner: ModelRunner, limits: BatchLimits, should_yield: bool = True
) -> EngineCore:
    return EngineCore(
        runner, shape_of(bundle), limits, lambda: 0.0, lambda stats: None, lambda: should_yield
    )


def shape_of(bundle: Bundle) -> ModelShape:
    return ModelShape(bundle.manifest.traits, (1.0,) * DEPTH, bundle.manifest.pad_id)


def row_of(bundle: Bundle, ids: Ids, rule: ExitRule, tag: int = 0) -> Row:
    compiled = shape_of(bundle).compile(rule)
    return Row(ids, np.zeros_like(ids), compiled, tag=tag, admitted_s=0.0)


def finish(core: EngineCore) -> dict[int, Answer]:
    answers = {}
    while core:
        for row, result in core.step():
            assert isinstance(result, Answer)
            assert row.tag not in answers
            answers[row.tag] = result
    return answers


def alone(bundle: Bundle, runner: ModelRunner, ids: Ids, rule: ExitRule) -> Answer:
    # The engine has no other work, so the row takes the fast path.
    core = new_core(bundle, runner, BatchLimits(), should_yield=False)
    core.add([row_of(bundle, ids, rule)])
    return finish(core)[0]


def all_heads(bundle: Bundle, runner: ModelRunner, ids: Ids) -> NDArray[np.float32]:
    """Return (exits, labels): what each head says of this row alone."""
    layers = bundle.manifest.exit_layers
    return np.stack([alone(bundle, runner, ids, LayerRule(layer=k)).logits for k in layers])


texts = (
    st.integers(1, MAX_TOKENS)
    .flatmap(
        lambda n: st.lists(
            st.integers(len(SPECIAL), len(SPECIAL) + len(WORDS) - 1), min_size=n, max_size=n
        )
    )
    .map(lambda ids: np.array(ids, np.int64))
)
batch_limits = st.builds(
    BatchLimits,
    max_rows=st.integers(1, 12),
    max_tokens=st.integers(MAX_TOKENS, 8 * MAX_TOKENS),
    max_hold_passes=st.floats(0, 4),
)


@pytest.mark.parametrize("model", KINDS, ids="-".join)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    mix=st.lists(
        st.tuples(texts, st.integers(1, DEPTH), st.integers(0, 6)), min_size=1, max_size=16
    ),
    limits=batch_limits,
)
def test_a_rows_answer_does_not_depend_on_mates_padding_or_order(
    bundle: Bundle,
    runners: Runners,
    model: tuple[Family, Precision],
    mix: list[tuple[Ids, int, int]],
    limits: BatchLimits,
) -> None:
    """What rules do with such answers: test_tasks_in_batches.py."""
    runner = runners[model]
    core = new_core(bundle, runner, limits)
    together: dict[int, Answer] = {}
    for turn in range(7):
        for tag, (ids, layer, when) in enumerate(mix):
            if when == turn:
                core.add([row_of(bundle, ids, LayerRule(layer=layer), tag)])
        together |= {row.tag: result for row, result in core.step()}  # type: ignore[misc]
    together |= finish(core)
    assert sorted(together) == list(range(len(mix)))
    for tag, (ids, layer, _) in enumerate(mix):
        expected = alone(bundle, runner, ids, LayerRule(layer=layer)).logits
        found = together[tag].logits
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("family", ["bert", "albert"])
@settings(max_examples=40)
@given(ids=texts)
def test_with_the_rule_off_and_at_every_exit_answers_are_the_original_models(
    bundle: Bundle, runners: Runners, family: Family, ids: Ids
) -> None:
    tokens = torch.from_numpy(ids)[None]
    with torch.no_grad():
        model = tiny_model(family=family)
        original = model(tokens, torch.ones_like(tokens), torch.zeros_like(tokens))
    expected = np.stack([logits[0].numpy() for logits in original])
    runner = runners[family, "fp32"]
    np.testing.assert_allclose(all_heads(bundle, runner, ids), expected, atol=1e-4)
    off = alone(bundle, runner, ids, NeverRule())
    assert off.reason is Reason.FINAL
    np.testing.assert_allclose(off.logits, expected[-1], atol=1e-4)
