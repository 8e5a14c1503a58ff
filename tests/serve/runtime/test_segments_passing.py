"""Exits that a chain of segments passes by itself: nothing but the way there is another."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import Precision
from serve.engine.core import EngineCore
from serve.engine.engine import Engine
from serve.engine.executor import ModelShape
from serve.engine.row import Answer, Row
from serve.engine.runner import ASKED, LEAVES, Gaps, Step, passes_exits
from serve.engine.scheduler import BatchLimits
from serve.rules import ConfidenceRule, EntropyRule, ExitRule, LayerRule, NeverRule, PatienceRule
from serve.rules.traits import Task
from serve.runtime.cpu_runner import CpuRunner
from tests.serve.runtime.test_one_session import NO_NUMBERS, OwnSessions, check_step, mask_of, say
from tests.serve.support.task_bundles import LABELS, Kind, write_task_bundle
from tests.support.tiny import DEPTH

pytestmark = pytest.mark.usefixtures("deep")

Kinds = tuple[Precision, tuple[int, ...]]
KINDS: list[Kinds] = list(product(("fp32", "int8"), ((0, 1, 2, 3), (0, 2, 3), (1, 3), (3,))))
# An exit's gap, given how far apart the logits there are.
GAPS: dict[str, Callable[[np.float32], float]] = {
    "nothing": lambda widest: 0,
    "leaves": lambda widest: float(LEAVES),
    "less": lambda widest: float(widest) / 2,
    "as much": float,
    "a little more": lambda widest: float(np.nextafter(widest, np.float32(np.inf))),
    "everything": lambda widest: float(ASKED),
    "unasked": lambda widest: math.inf,
}


@dataclass
class Way:
    """Rows before an exit of a chain, and the steps from there on, one by one."""

    first: int
    hidden: Any
    inputs: tuple[Any, ...]
    steps: list[Step]

    @property
    def widest(self) -> list[np.float32]:
        """How far apart the two largest logits are, after each step, of any row."""
        ordered = [np.sort(step.logits, axis=-1) for step in self.steps]
        return [(logits[..., -1] - logits[..., -2]).max() for logits in ordered]

    def run(self, chain: CpuRunner, gaps: Gaps) -> Step:
        if not self.first:
            return chain.start(*self.inputs, gaps=gaps)
        return chain.advance(self.first, self.hidden, *self.inputs, gaps=gaps)


def way(apart: OwnSessions, first: int, lengths: Sequence[int], seed: int = 0) -> Way:
    generator, mask = np.random.default_rng(seed), mask_of(np.array(lengths))
    ids = generator.integers(5, 20, mask.shape) * mask
    step, keep = apart.start(ids, mask, 0 * ids), np.arange(len(mask))
    inputs: tuple[Any, ...] = (ids, mask, 0 * ids)
    hidden, steps = None, [step]
    for index in range(1, len(apart)):
        if index <= first:
            keep = generator.permutation(len(mask))[: max(1, len(mask) - 1)]
            mask = mask[keep][:, : mask[keep].sum(axis=1).max()]
            hidden, inputs, steps = step.hidden, (keep, mask), []
        step = apart.advance(index, step.hidden, keep, mask)
        steps.append(step)
        keep = np.arange(len(mask))
    return Way(first, hidden, inputs, steps)


def check(chain: CpuRunner, rows: Way, gaps: Sequence[float], exits: int) -> None:
    step = rows.run(chain, np.array(gaps, np.float32))
    assert step.exits == exits
    wanted = rows.steps[exits - 1]
    if gaps[rows.first + exits - 1] == LEAVES:
        assert step.hidden is None, "nobody goes on from it"
        wanted = wanted._replace(hidden=None)
    check_step(step, wanted)
    came_by = zip(rows.steps[: exits - 1], gaps[rows.first :], strict=False)
    asked = [before.logits for before, gap in came_by if gap < math.inf]
    if not asked:
        assert step.passed is None
    else:
        assert step.passed is not None
        np.testing.assert_array_equal(step.passed, np.stack(asked))


@dataclass
class Pair:
    """A chain, and its segments each in a session of its own."""

    chain: CpuRunner
    apart: OwnSessions


@pytest.fixture(scope="module")
def pairs(bundle: Bundle, deep: None) -> dict[Kinds, Pair]:
    whole = {precision: CpuRunner(bundle, precision, 1) for precision, _ in KINDS}
    return {
        (precision, active): Pair(
            whole[precision].presenting(active), OwnSessions(bundle, precision, 1, active)
        )
        for precision, active in KINDS
    }


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kind=st.sampled_from(KINDS),
    first=st.integers(0, DEPTH - 1),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    seed=st.integers(0, 999),
    picks=st.lists(st.sampled_from(list(GAPS)), min_size=DEPTH, max_size=DEPTH),
)
def test_passing_gives_what_step_by_step_gives_to_the_last_bit(
    pairs: dict[Kinds, Pair],
    kind: Kinds,
    first: int,
    lengths: list[int],
    seed: int,
    picks: list[str],
) -> None:
    pair, first = pairs[kind], first % len(pairs[kind].chain)
    rows = way(pair.apart, first, lengths, seed)
    own = [GAPS[pick](widest) for pick, widest in zip(picks, rows.widest, strict=False)]
    gaps = [*own[:-1], 0.0]
    near = zip(rows.widest, gaps, strict=True)
    stops = [gap < math.inf and not widest < np.float32(gap) for widest, gap in near]
    check(pair.chain, rows, [math.inf] * first + gaps, stops.index(True) + 1)


def test_one_row_that_may_leave_brings_all_back(bundle: Bundle) -> None:
    apart = OwnSessions(bundle, "fp32", 1)
    rows = way(apart, 0, [5, 5, 5])
    ordered = np.sort(rows.steps[0].logits, axis=1)
    widest, *others = sorted(ordered[:, -1] - ordered[:, -2], reverse=True)
    chain = CpuRunner(bundle, "fp32", 1)
    check(chain, rows, [(widest + others[0]) / 2, 0, 0, 0], 1)
    check(chain, rows, [2 * widest, 0, 0, 0], 2)


def test_no_gaps_are_gaps_of_0(bundle: Bundle) -> None:
    chain, apart = CpuRunner(bundle, "fp32", 1), OwnSessions(bundle, "fp32", 1)
    rows = way(apart, 2, [5, 3])
    check_step(chain.advance(2, rows.hidden, *rows.inputs), rows.steps[0])
    check(chain, rows, [0] * DEPTH, 1)


def test_half_precision_passes_exits(half_bundle: Bundle) -> None:
    chain, apart = CpuRunner(half_bundle, "fp16", 2), OwnSessions(half_bundle, "fp16", 2)
    check(chain, way(apart, 1, [5, 2]), [0, ASKED, math.inf, 0], 3)


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("task", LABELS)
def test_models_of_every_task_pass_exits(task: Task, learned: bool, tmp_path: Path) -> None:
    made = load_bundle(write_task_bundle(tmp_path, Kind(task, learned=learned)))
    chain, apart = CpuRunner(made, "fp32", 1), OwnSessions(made, "fp32", 1)
    for first, lengths in ((0, [6, 2, 4]), (1, [7]), (2, [1, 1])):
        rows = way(apart, first, lengths)
        for far in (math.inf, ASKED):
            check(chain, rows, [far, far, 0], 3 - first)
            check(chain, rows, [far, 0, 0], max(1, 2 - first))


@pytest.mark.parametrize("logits", NO_NUMBERS, ids=str)
@pytest.mark.parametrize("strange", [(1,), (2,), (1, 2)])
def test_passing_goes_on_over_an_exit_that_is_not_active_whatever_its_head_says(
    bundle_copy: Callable[..., Path], strange: tuple[int, ...], logits: list[float]
) -> None:
    made = load_bundle(bundle_copy())
    for index in strange:
        say(made.segment_paths("fp32")[index], logits)
    active = tuple(index for index in range(DEPTH) if index not in strange)
    chain = CpuRunner(made, "fp32", 1).presenting(active)
    rows = way(OwnSessions(made, "fp32", 1, active), 0, [4, 9])
    for far in (math.inf, ASKED):
        check(chain, rows, [far] * (len(active) - 1) + [0], len(active))
    check(chain, rows, [0] * len(active), 1)


class Watched:
    """A chain that counts, per call, the exits it has come by."""

    passes: Literal[True] = True

    def __init__(self, chain: CpuRunner) -> None:
        self._chain, self.calls = chain, list[int]()
        self.join = chain.join

    def __len__(self) -> int:
        return len(self._chain)

    def start(self, *inputs: Any) -> Step:
        return self._note(self._chain.start(*inputs))

    def advance(self, *inputs: Any) -> Step:
        return self._note(self._chain.advance(*inputs))

    def _note(self, step: Step) -> Step:
        self.calls.append(step.exits)
        return step


def row_of(key: int, rule: ExitRule) -> Row:
    ids = np.random.default_rng(key).integers(5, 200, 9)
    return Row(ids, 0 * ids, rule, tag=key, admitted_s=0.0)


def in_batches(bundle: Bundle, chain: CpuRunner, rule: ExitRule, keys: range) -> dict[int, Answer]:
    """Run rows of one length together, judged after every segment."""
    runner = Watched(chain)
    core = EngineCore(runner, shape_of(bundle), BatchLimits(), lambda: 0.0, lambda stats: None)
    core.add([row_of(key, rule) for key in keys])
    answers: dict[int, Answer] = {}
    while core:
        answers |= {row.tag: result for row, result in core.turn()}  # type: ignore[misc]
    assert set(runner.calls) == {1}
    return answers


def shape_of(bundle: Bundle) -> ModelShape:
    return ModelShape(bundle.manifest.traits, (1.0,) * DEPTH, bundle.manifest.pad_id)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize(
    "rule",
    [
        EntropyRule(threshold=0.3),
        EntropyRule(threshold=(0.05, 0.6, 0.2, 0.1)),
        ConfidenceRule(threshold=0.9, min_layer=2),
        PatienceRule(patience=2),
        LayerRule(layer=3),
        NeverRule(),
    ],
    ids=lambda rule: rule.rule,
)
def test_lone_rows_through_a_real_engine_fare_as_in_a_batch(
    bundle: Bundle, rule: ExitRule, precision: Precision
) -> None:
    chain, keys = CpuRunner(bundle, precision, 1), range(12)
    assert passes_exits(chain)
    together, runner = in_batches(bundle, chain, rule, keys), Watched(chain)
    outcomes: SimpleQueue[Any] = SimpleQueue()
    engine = Engine(runner, shape_of(bundle), outcomes.put)
    engine.start()
    try:
        for key in keys:
            engine.submit([row_of(key, rule)])
            ((_, alone),) = outcomes.get(timeout=30)
            wanted = together[key]
            assert isinstance(alone, Answer)
            assert (alone.exit_index, alone.reason) == (wanted.exit_index, wanted.reason)
            np.testing.assert_array_equal(alone.logits, wanted.logits)
            np.testing.assert_array_equal(alone.signal, wanted.signal)
    finally:
        engine.stop(30)
    assert max(runner.calls) > 1, "some exits should have been passed"
    assert sum(runner.calls) == sum(answer.exit_index + 1 for answer in together.values())
