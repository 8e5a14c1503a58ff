import json

import pytest

from loadtest.load.request_log import Outcome, outcome_of

REPLY = {"results": [{"label": "positive"}]}


def test_every_text_must_have_a_result() -> None:
    content = json.dumps(REPLY).encode()
    assert outcome_of(200, content, {}, 1) == Outcome(200, reply=REPLY)
    assert outcome_of(200, content, {}, 2).problem == "1 results for 2 texts"


def test_refusal_carries_the_servers_words_and_when_to_come_back() -> None:
    content = b'{"error": {"code": "overloaded"}}'
    outcome = outcome_of(429, content, {"retry-after": "3"}, 1)
    assert outcome.problem == "429 {'code': 'overloaded'}"
    assert outcome.retry_after_s == 3.0


def test_body_without_json_is_shown() -> None:
    assert outcome_of(500, b"Internal Server Error", {}, 1).problem == (
        "500 without JSON: Internal Server Error"
    )


@pytest.mark.parametrize(
    ("status", "transient"), [(0, True), (503, True), (429, True), (422, False)]
)
def test_only_a_transient_failure_is_worth_another_try(status: int, transient: bool) -> None:
    assert Outcome(status, "some problem").transient is transient
