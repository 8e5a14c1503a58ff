import json

import pytest

from loadtest.load.request_log import Outcome, problem_of, worth_a_retry

REPLY = {"results": [{"label": "positive"}]}


def test_answer_to_every_text_is_no_problem() -> None:
    outcome = problem_of(200, json.dumps(REPLY).encode(), {}, 1)
    assert (outcome.problem, outcome.reply) == ("", REPLY)


def test_too_few_results_are_a_problem() -> None:
    assert problem_of(200, json.dumps(REPLY).encode(), {}, 2).problem == "1 results for 2 texts"


def test_refusal_carries_the_servers_words_and_when_to_come_back() -> None:
    content = b'{"error": {"code": "overloaded"}}'
    outcome = problem_of(429, content, {"retry-after": "3"}, 1)
    assert outcome.problem == "429 {'code': 'overloaded'}"
    assert outcome.retry_after_s == 3.0


def test_what_is_no_json_is_shown() -> None:
    assert problem_of(500, b"Internal Server Error", {}, 1).problem == (
        "500 without JSON: Internal Server Error"
    )


@pytest.mark.parametrize(("status", "again"), [(0, True), (503, True), (429, True), (422, False)])
def test_only_what_may_pass_is_asked_again(status: int, again: bool) -> None:
    assert worth_a_retry(Outcome(status, "some problem")) is again
