import math
from typing import Any

import pytest
from pydantic import ValidationError

from serve.errors import InvalidRule
from serve.rules import EXIT_RULE, check_rule, entropy_ceiling
from tests.traits import two_labels

EXITS = (2, 4, 6)


def parse(**fields: Any):
    return EXIT_RULE.validate_python(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"rule": "entropy", "threshold": 0.2},
        {"rule": "entropy", "threshold": 0},
        {"rule": "confidence", "threshold": 1, "min_layer": 2},
        {"rule": "patience", "patience": 9, "max_layer": 4},
        {"rule": "layer", "layer": 4},
        {"rule": "never", "min_layer": 2, "max_layer": 2},
    ],
)
def test_a_rule_survives_the_way_through_json(fields: dict[str, Any]) -> None:
    rule = parse(**fields)
    check_rule(rule, two_labels(EXITS))
    assert EXIT_RULE.validate_json(EXIT_RULE.dump_json(rule)) == rule
    assert rule.model_dump(exclude_none=True) == fields


@pytest.mark.parametrize(
    "fields",
    [
        {"rule": "entropy"},
        {"rule": "entropy", "threshold": -0.1},
        {"rule": "entropy", "threshold": math.nan},
        {"rule": "entropy", "threshold": math.inf},
        {"rule": "entropy", "threshold": "0.1"},
        {"rule": "entropy", "threshold": True},
        {"rule": "entropy", "threshold": 0.1, "patience": 1},
        {"rule": "confidence", "threshold": 1.01},
        {"rule": "confidence", "threshold": math.nan},
        {"rule": "patience", "patience": 0},
        {"rule": "patience", "patience": 1.5},
        {"rule": "layer", "layer": 0},
        {"rule": "layer", "layer": 4, "min_layer": 5},
        {"rule": "layer", "layer": 4, "max_layer": 3},
        {"rule": "never", "min_layer": 5, "max_layer": 4},
        {"rule": "never", "min_layer": 0},
        {"rule": "sometimes"},
        {"threshold": 0.1},
    ],
)
def test_what_makes_no_sense_for_any_model_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        parse(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rule": "layer", "layer": 3}, "layer 3 has no exit: the model has exits at 2, 4, 6"),
        ({"rule": "layer", "layer": 8}, "layer 8 has no exit"),
        ({"rule": "never", "max_layer": 1}, "max_layer 1 is before the first exit"),
        ({"rule": "never", "max_layer": 7}, "max_layer 7 is beyond the model's 6 layers"),
        ({"rule": "entropy", "threshold": 0.1, "min_layer": 7}, "min_layer 7 is beyond"),
        ({"rule": "never", "min_layer": 3, "max_layer": 3}, "there is no exit from min_layer 3"),
        ({"rule": "entropy", "threshold": 0.71}, "must be from 0 to 0.7"),
    ],
)
def test_what_this_model_cannot_follow_is_refused_with_what_would_be_right(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRule, match=message):
        check_rule(parse(**fields), two_labels(EXITS))


def test_the_largest_entropy_threshold_is_just_beyond_the_largest_entropy() -> None:
    for labels in range(2, 200):
        assert math.log(labels) <= entropy_ceiling(labels) < math.log(labels) + 0.1
    assert entropy_ceiling(2) == 0.7
