from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from loadtest.bench.engine_driver import BenchFailed, FreeSegments, driving, row_of, rows_of
from loadtest.bench.inputs import random_texts
from serve.engine.row import Row
from serve.engine.runner import Ids, StepOutput
from serve.engine.shape import ModelShape
from serve.rules import NeverRule
from tests.support.traits import two_labels

SHAPE = ModelShape(two_labels((1, 2, 3)), (1.0,) * 3)


class MostSeen(FreeSegments):
    """Notes the largest batch."""

    most_rows = 0

    def start(self, input_ids: Ids, *more: Any, **options: Any) -> StepOutput:
        self.most_rows = max(self.most_rows, len(input_ids))
        return super().start(input_ids, *more, **options)


class Broken(FreeSegments):
    """Raises at the first run."""

    def start(self, *inputs: Any, **options: Any) -> StepOutput:
        raise RuntimeError("no")


def rows(layers: Sequence[int]) -> list[Row]:
    return rows_of(SHAPE, random_texts([5] * len(layers), 10), layers)


@pytest.mark.parametrize("in_flight", [1, 7, 1000])
def test_every_row_leaves_where_it_is_told(in_flight: int) -> None:
    sent = rows([1, 2, 3] * 50)
    runner = MostSeen(3, 200)
    with driving(runner, SHAPE) as driver:
        assert driver.run(sent, in_flight) > 0
        assert driver.run(rows([3]), in_flight) > 0
        assert not driver.engine.backlog.rows
    assert not driver.engine.alive
    assert runner.most_rows <= in_flight
    assert not any(np.isnan(row.started_s) for row in sent)


def test_error_of_a_row_ends_the_bench() -> None:
    with pytest.raises(BenchFailed), driving(Broken(3, 8), SHAPE) as it:
        it.run(rows([1, 2]), 2)


def test_row_that_leaves_elsewhere_ends_the_bench() -> None:
    early = row_of(SHAPE, random_texts([5], 10)[0], NeverRule(max_layer=2))
    with (
        pytest.raises(BenchFailed),
        driving(FreeSegments(3, 8), SHAPE) as driver,
    ):
        driver.run([early], 1)
