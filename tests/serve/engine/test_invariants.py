"""The engine's core answers what the original model does; its mates: test_tasks_in_batches.py."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.bundle.loader import Bundle
from serve.engine.core import EngineCore
from serve.engine.row import Answer, Row
from serve.engine.scheduler import BatchLimits
from serve.engine.shape import ModelShape
from serve.rules import ExitRule, LayerRule, NeverRule
from serve.rules.criterion import Reason
from serve.runtime.cpu_runner import CpuRunner
from tests.support.tiny import DEPTH, MAX_TOKENS, SPECIAL, WORDS, Family, tiny_model

words = st.integers(len(SPECIAL), len(SPECIAL) + len(WORDS) - 1)


@pytest.fixture(scope="module")
def runners(bundle: Bundle, shared_bundle: Bundle) -> dict[Family, CpuRunner]:
    return {"bert": CpuRunner(bundle, "fp32", 1), "albert": CpuRunner(shared_bundle, "fp32", 1)}


@pytest.mark.parametrize("family", ["bert", "albert"])
@settings(max_examples=40)
@given(ids=st.lists(words, min_size=1, max_size=MAX_TOKENS))
def test_with_the_rule_off_and_at_every_exit_answers_are_the_original_models(
    bundle: Bundle, runners: dict[Family, CpuRunner], family: Family, ids: list[int]
) -> None:
    shape = ModelShape(bundle.manifest.traits, (1.0,) * DEPTH, bundle.manifest.pad_id)

    def alone(rule: ExitRule) -> Answer:
        core = EngineCore(
            runners[family], shape, BatchLimits(), lambda: 0.0, lambda stats: None, lambda: False
        )
        row = np.array(ids, np.int64)
        core.add([Row(row, np.zeros_like(row), shape.compile(rule), tag=0, admitted_s=0.0)])
        outcomes = []
        while core:
            outcomes += core.step()
        ((_, answer),) = outcomes
        assert isinstance(answer, Answer)
        return answer

    tokens = torch.tensor([ids])
    with torch.no_grad():
        model = tiny_model(family=family)
        original = model(tokens, torch.ones_like(tokens), torch.zeros_like(tokens))
    expected = np.stack([logits[0].numpy() for logits in original])
    heads = [alone(LayerRule(layer=layer)).logits for layer in bundle.manifest.exit_layers]
    np.testing.assert_allclose(np.stack(heads), expected, atol=1e-4)
    off = alone(NeverRule())
    assert off.reason is Reason.FINAL
    np.testing.assert_allclose(off.logits, expected[-1], atol=1e-4)
