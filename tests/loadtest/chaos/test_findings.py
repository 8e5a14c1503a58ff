from pathlib import Path

import pytest

from loadtest.chaos.explanations import Event, why
from loadtest.chaos.findings import findings_text, judge
from loadtest.chaos.scenario import NotSeen, Scenario, wait_for
from loadtest.chaos.scenarios import _check_versions
from loadtest.http.client import Json
from loadtest.http.server_process import ServerProcess

REFUSED = "no answer: [Errno 111] Connection refused"


def scenario(event: Event, **report: object) -> Scenario:
    found: Json = {
        "total": {"requests": 100, "failures": 0, "p50_ms": 5.0, "p99_ms": 20.0},
        "first_tries_failed": 0,
        "longest_gap_s": 0.2,
        "retried": {},
        "errors": {},
    }
    server = ServerProcess((), port=1)
    return Scenario(event, server, 10.0, 5.0, Path("x"), report=found | report)


def test_failure_that_the_event_explains_is_no_problem() -> None:
    killed = scenario("proxy killed", first_tries_failed=3, retried={REFUSED: 3})
    assert judge(killed) == []
    assert "| 3 | first | " + REFUSED in findings_text([killed])


def test_failure_without_an_explanation_is_a_problem() -> None:
    changed = scenario("thresholds", first_tries_failed=1, errors={REFUSED: 1})
    assert judge(changed) == [f"unexplained failure: {REFUSED}"]
    text = findings_text([changed])
    assert "**unexplained**" in text
    assert "* thresholds: unexplained failure" in text


@pytest.mark.parametrize(
    ("event", "message", "explained"),
    [
        ("replica killed", "500 without JSON: Internal Server Error", True),
        ("replica killed", "no answer: Remote end closed connection without response", True),
        ("replica killed", REFUSED, False),
        ("replica killed", "1 results for 2 texts", False),
        ("replica stopped", "no answer: connection closed.", True),
        ("replica stopped", REFUSED, False),
        ("controller stopped", "no answer: connection closed.", False),
        ("controller killed", "500 without JSON: Internal Server Error", False),
        ("SIGTERM", REFUSED, True),
        ("SIGTERM", "503 unavailable: the server is stopping; try again", True),
        ("SIGTERM", "404 without JSON: Path '/v1/classify' not found.", False),
        ("SIGTERM", "503 without JSON: This node is being drained.", False),
    ],
)
def test_event_explains_its_own_failures_only(event: Event, message: str, explained: bool) -> None:
    assert (why(event, message) is not None) == explained


@pytest.mark.parametrize(
    ("exits", "problem"),
    [
        ({"1": {"2": 5}, "9": {"1": 1}}, "answers name version 9, which there never was"),
        ({"2": {"1": 5, "6": 1}}, "version 2 says layer 1, answers left at {'1': 5, '6': 1}"),
    ],
)
def test_answer_that_its_policy_version_does_not_allow_is_a_problem(
    exits: Json, problem: str
) -> None:
    found = scenario("thresholds", exits={"by_policy_version": exits})
    _check_versions(found, {1: None, 2: 1})
    assert found.problems == [problem]


def test_event_that_does_not_happen_is_named() -> None:
    with pytest.raises(NotSeen, match="another replica: not within 0 s"):
        wait_for(lambda: False, "another replica", timeout_s=0)
