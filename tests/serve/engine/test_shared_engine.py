"""Shared layers in the engine: who runs together, who leaves, and what is counted."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from serve.bundle.loader import Bundle
from serve.criteria.judge import Reason
from serve.engine.core import EngineCore
from serve.engine.executor import ModelShape
from serve.engine.row import Answer, BatchStats, Outcome, Row
from serve.engine.runner import Hidden, Ids, Step
from serve.engine.scheduler import BatchLimits
from serve.errors import DeadlineExceeded
from serve.rules import ExitRule, LayerRule, NeverRule, PatienceRule
from serve.runtime.shared_layers import SharedLayers
from tests.support.traits import two_labels


class Watched(SharedLayers):
    """Notes the depths of the rows of every batch."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle, "fp32", num_threads=1)
        self.batches: list[list[int]] = []

    def advance_mixed(
        self, depths: NDArray[np.int64], hidden: Hidden, keep: NDArray[np.int64], mask: Ids
    ) -> Step:
        self.batches.append(sorted(depths.tolist()))
        return super().advance_mixed(depths, hidden, keep, mask)


class Engine:
    """The engine's core over a watched runner, with a clock that the test sets."""

    def __init__(self, bundle: Bundle) -> None:
        self.runner = Watched(bundle)
        self.now_s = 0.0
        self.stats: list[BatchStats] = []
        layers = bundle.manifest.exit_layers
        self.core = EngineCore(
            self.runner,
            ModelShape(two_labels(layers), (1.0,) * len(layers)),
            BatchLimits(),
            lambda: self.now_s,
            self.stats.append,
        )

    def add(self, tag: str, rule: ExitRule | None = None, deadline_s: float = np.inf) -> None:
        ids = np.arange(4, 10)
        row = Row(ids, 0 * ids, rule or NeverRule(), tag, deadline_s, admitted_s=self.now_s)
        self.core.add([row])

    def finish(self) -> dict[str, Outcome]:
        found: dict[str, Outcome] = {}
        while self.core:
            found |= {outcome.row.tag: outcome for outcome in self.core.turn()}
        self.core.write_books()
        return found


def few_exits(bundle: Bundle) -> Bundle:
    """Return the bundle with exits after layers 2 and 4."""
    exits = tuple(e for e in bundle.manifest.exits if e.layer in (2, 4))
    manifest = bundle.manifest.model_copy(update={"exits": exits})
    return replace(bundle, manifest=manifest)


def test_new_rows_join_those_that_are_deeper_at_every_step(shared_bundle: Bundle) -> None:
    engine = Engine(shared_bundle)
    for tag in ("first", "second", "third"):
        engine.add(tag)
        engine.core.turn()
    answers = engine.finish()
    assert engine.runner.batches == [[0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3], [3]]
    assert [answers[tag].result.exit_index for tag in ("first", "second", "third")] == [3] * 3


def test_every_row_leaves_a_mixed_batch_by_its_own_rule(shared_bundle: Bundle) -> None:
    engine = Engine(shared_bundle)
    engine.add("deep")
    engine.core.turn()
    engine.add("shallow", LayerRule(layer=1))
    engine.add("patient", PatienceRule(patience=4))
    (left,) = engine.core.turn()
    assert (left.row.tag, left.result.reason) == ("shallow", Reason.LAYER)
    answers = engine.finish()
    assert {tag: found.result.exit_index for tag, found in answers.items()} == {
        "deep": 3,
        "patient": 3,
    }
    np.testing.assert_array_equal(answers["deep"].result.logits, answers["patient"].result.logits)


def test_counts_of_mixed_batches_add_up_to_what_every_row_ran(shared_bundle: Bundle) -> None:
    engine = Engine(shared_bundle)
    for tag in ("first", "second", "third"):
        engine.add(tag)
        engine.core.turn()
    engine.finish()
    rows = [sum(s.num_rows for s in engine.stats if s.exit_index == k) for k in range(4)]
    tokens = [sum(s.num_tokens for s in engine.stats if s.exit_index == k) for k in range(4)]
    assert rows == [3] * 4
    assert tokens == [18] * 4


def test_a_late_row_between_exits_leaves_with_the_answer_of_the_exit_before(
    shared_bundle: Bundle,
) -> None:
    engine = Engine(few_exits(shared_bundle))
    engine.add("on time")
    engine.add("late", deadline_s=1)
    for _ in range(3):
        assert engine.core.turn() == []
    engine.now_s = 2
    late = engine.finish()["late"].result
    assert isinstance(late, Answer)
    assert (late.exit_index, late.reason) == (0, Reason.DEADLINE)
    other = Engine(few_exits(shared_bundle))
    other.add("stops there", LayerRule(layer=2))
    np.testing.assert_array_equal(late.logits, other.finish()["stops there"].result.logits)


def test_a_late_row_before_the_first_exit_has_no_answer(shared_bundle: Bundle) -> None:
    engine = Engine(few_exits(shared_bundle))
    engine.add("late", deadline_s=1)
    engine.core.turn()
    engine.now_s = 2
    assert isinstance(engine.finish()["late"].result, DeadlineExceeded)


def test_an_exit_tells_how_many_layers_lie_before_it(shared_bundle: Bundle) -> None:
    assert Engine(few_exits(shared_bundle)).core.exit_depths == (2, 4)
