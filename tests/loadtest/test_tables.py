import pytest

from loadtest.http.client import Json
from loadtest.tables import worded


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"rule": "entropy", "threshold": 0.2}, "entropy < 0.2"),
        ({"rule": "confidence", "threshold": 0.95}, "confidence >= 0.95"),
        ({"rule": "patience", "patience": 2, "min_layer": None}, "patience 2"),
        ({"rule": "never"}, "never"),
    ],
)
def test_rule_is_worded_in_brief(rule: Json, words: str) -> None:
    assert worded(rule) == words
