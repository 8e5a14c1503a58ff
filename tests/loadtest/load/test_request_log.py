import pytest

from loadtest.load.request_log import Outcome, outcome_of


def test_refusal_carries_the_servers_words_and_when_to_come_back() -> None:
    content = b'{"error": {"code": "overloaded"}}'
    outcome = outcome_of(429, content, {"retry-after": "3"}, 1)
    assert outcome.problem == "429 {'code': 'overloaded'}"
    assert outcome.retry_after_s == 3.0


@pytest.mark.parametrize(
    ("status", "transient"), [(0, True), (503, True), (429, True), (422, False)]
)
def test_only_a_transient_failure_is_worth_another_try(status: int, transient: bool) -> None:
    assert Outcome(status, "some problem").transient is transient
