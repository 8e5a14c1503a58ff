import math

import pytest

from loadtest.bench.engine.bars import at_least, at_most


@pytest.mark.parametrize(
    ("value", "low_enough", "high_enough"),
    [(0.9, True, False), (1.0, True, True), (1.1, False, True), (math.nan, False, False)],
)
def test_value_is_on_the_right_side_of_its_bound(
    value: float, low_enough: bool, high_enough: bool
) -> None:
    assert at_most("what", "case", value, 1.0).met == low_enough
    assert at_least("what", "case", value, 1.0).met == high_enough


def test_json_carries_the_verdict() -> None:
    assert at_most("what", "case", 2.0, 1.0, "ms").as_json() == {
        "what": "what",
        "case": "case",
        "value": 2.0,
        "bound": 1.0,
        "sense": "at most",
        "unit": "ms",
        "met": False,
    }
