"""Every task through the real engine core: a row's answer does not depend on its batch mates."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from serve.bundle.loader import load_bundle
from serve.engine.core import EngineCore
from serve.engine.cost_model import CostModel, SegmentCost
from serve.engine.row import Answer, Row
from serve.engine.runner import ModelRunner
from serve.engine.scheduler import BatchLimits
from serve.engine.shape import ModelShape
from serve.rules import EXIT_RULE, ExitRule, LayerRule
from serve.rules.traits import Traits
from serve.runtime.placement import Placement, build_runner
from tests.serve.support.task_bundles import EXITS, LABELS, VOCAB_SIZE, Kind, write_task_bundle
from tests.support.tiny import SPECIAL

TOLERANCE = 1e-4
KINDS = [Kind(task, learned=True) for task in LABELS]

Ids = NDArray[np.int64]
Runners = dict[Kind, ModelRunner]

_FIXED: list[dict[str, Any]] = [
    {"rule": "layer", "layer": 2},
    {"rule": "never"},
    {"rule": "never", "max_layer": 2},
    {"rule": "learned", "threshold": 0.45},
]
_CERTAIN: list[dict[str, Any]] = [
    {"rule": "entropy", "threshold": 0.5},
    {"rule": "confidence", "threshold": 0.75},
    {"rule": "confidence", "threshold": 0.8, "fallback": "most_confident"},
    {"rule": "margin", "threshold": 0.5, "min_layer": 2},
    {"rule": "patience", "patience": 1},
]
RULES: dict[str, list[dict[str, Any]]] = {
    "single_label": [*_FIXED, *_CERTAIN, {"rule": "voting", "votes": 2}],
    "multi_label": [*_FIXED, *_CERTAIN, {"rule": "entropy", "threshold": 0.5, "reduce": "mean"}],
    "regression": [*_FIXED, {"rule": "patience", "patience": 1, "tolerance": 1.2}],
    "token": [*_FIXED, *_CERTAIN, {"rule": "confidence", "threshold": 0.6, "reduce": "max"}],
}


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> Runners:
    folder = tmp_path_factory.mktemp("tasks")
    bundles = {
        kind: load_bundle(write_task_bundle(folder, kind, str(i))) for i, kind in enumerate(KINDS)
    }
    return {k: build_runner(b, Placement("cpu", "fp32"), 1) for k, b in bundles.items()}


def new_core(kind: Kind, runner: ModelRunner, limits: BatchLimits, clock: Any) -> EngineCore:
    # Launches that cost this much make batches join.
    costs = CostModel([SegmentCost(fixed_s=1e-3, per_token_s=1e-6)] * len(EXITS))
    shape = replace(shape_of(kind), costs=costs)
    return EngineCore(runner, shape, limits, clock, lambda stats: None)


def shape_of(kind: Kind) -> ModelShape:
    return ModelShape(Traits(EXITS, kind.labels, kind.task, kind.learned), (1.0,) * len(EXITS))


def row_of(kind: Kind, ids: Ids, rule: ExitRule, tag: int = 0) -> Row:
    # The first and the last are no words, as in a text that a tokenizer has framed.
    counted = np.ones(len(ids), np.bool_)
    counted[[0, -1]] = False
    compiled = shape_of(kind).compile(rule)
    return Row(ids, 0 * ids, compiled, tag, admitted_s=0.0, counted=counted, exit_trace=[])


def finish(core: EngineCore) -> dict[int, Answer]:
    answers: dict[int, Answer] = {}
    while core:
        for row, result in core.step():
            assert isinstance(result, Answer)
            assert row.tag not in answers
            answers[row.tag] = result
    return answers


def alone(kind: Kind, runner: ModelRunner, ids: Ids, rule: ExitRule) -> Answer:
    core = new_core(kind, runner, BatchLimits(), lambda: 0.0)
    core.add([row_of(kind, ids, rule)])
    return finish(core)[0]


@cache
def rules_of(task: str) -> list[ExitRule]:
    return [EXIT_RULE.validate_python(rule) for rule in RULES[task]]


def is_a_coin_toss(rule: ExitRule, answer: Answer) -> bool:
    """Tell whether a signal or a lead lies within what may differ by company."""
    threshold = getattr(rule, "threshold", None)
    if threshold is not None:
        signals = sorted(p.signal for p in answer.exit_trace)
        leads = np.diff(signals)  # of which the highest answers, with fallback
        close = any(abs(signal - threshold) < 10 * TOLERANCE for signal in signals)
        return close or (rule.rule != "learned" and bool((leads < 10 * TOLERANCE).any()))
    if getattr(rule, "tolerance", None) is not None:
        moves = np.abs(np.diff([float(p.logits[0]) for p in answer.exit_trace]))
        return bool((np.abs(moves - rule.tolerance) < 10 * TOLERANCE).any())
    if rule.rule in ("patience", "voting"):
        best = [np.sort(np.atleast_2d(p.logits), axis=-1) for p in answer.exit_trace]
        ties = [(b[:, -1] - b[:, -2] if b.shape[1] > 1 else b[:, 0]).min() for b in best]
        signs = [np.abs(p.logits).min() for p in answer.exit_trace]  # of labels on or off
        return min(*ties, *signs) < 10 * TOLERANCE
    return False


def text(length: int, seed: int) -> Ids:
    # Drawn here: what hypothesis draws token by token is too much alike.
    return np.random.default_rng(seed).integers(len(SPECIAL), VOCAB_SIZE, length)


texts = st.builds(text, st.integers(3, 24), st.integers(0, 2**32 - 1))
limits = st.builds(
    BatchLimits,
    max_rows=st.integers(1, 8),
    max_tokens=st.integers(24, 120),
    max_hold_passes=st.floats(0, 4),
)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    mix=st.lists(st.tuples(texts, st.integers(0, 99), st.integers(0, 4)), min_size=1, max_size=20),
    bounds=limits,
)
def test_a_rows_answer_and_exit_trace_are_those_it_has_alone(
    runners: Runners, kind: Kind, mix: list[tuple[Ids, int, int]], bounds: BatchLimits
) -> None:
    runner, rules = runners[kind], rules_of(kind.task)
    core = new_core(kind, runner, bounds, lambda: 0.0)
    together: dict[int, Answer] = {}
    for turn in range(5):
        for tag, (ids, pick, when) in enumerate(mix):
            if when == turn:
                core.add([row_of(kind, ids, rules[pick % len(rules)], tag)])
        together |= {row.tag: result for row, result in core.step()}  # type: ignore[misc]
    together |= finish(core)
    assert sorted(together) == list(range(len(mix)))
    for tag, (ids, pick, _) in enumerate(mix):
        rule, answer = rules[pick % len(rules)], together[tag]
        heads = alone(kind, runner, ids, LayerRule(layer=EXITS[-1])).exit_trace
        for passed in answer.exit_trace:
            expected = heads[passed.exit_index].logits
            np.testing.assert_allclose(passed.logits, expected, rtol=TOLERANCE, atol=TOLERANCE)
        shape = (len(ids), len(kind.labels)) if kind.per_token else (len(kind.labels),)
        assert answer.logits.shape == shape
        np.testing.assert_allclose(
            answer.logits, heads[answer.head_index].logits, rtol=TOLERANCE, atol=TOLERANCE
        )
        expected_answer = alone(kind, runner, ids, rule)
        if not is_a_coin_toss(rule, expected_answer):
            assert answer.exit_index == expected_answer.exit_index
            assert answer.reason == expected_answer.reason
            assert (answer.head_index, answer.label) == (
                expected_answer.head_index,
                expected_answer.label,
            )
            found, expected = ([p.signal for p in a.exit_trace] for a in (answer, expected_answer))
            np.testing.assert_allclose(found, expected, atol=10 * TOLERANCE)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rules_part_the_rows_so_that_batches_shrink(runners: Runners, kind: Kind) -> None:
    """Else the property above would hold for nothing."""
    generator = np.random.default_rng(0)
    rows = [generator.integers(len(SPECIAL), VOCAB_SIZE, n) for n in range(3, 25)]
    for rule in rules_of(kind.task):
        # Of many parts, random heads never agree on all.
        if rule.rule in ("layer", "never") or (len(kind.labels) > 3 and rule.rule == "patience"):
            continue
        left = {alone(kind, runners[kind], ids, rule).exit_index for ids in rows}
        assert len(left) > 1, f"{rule} lets all rows leave at one exit"
