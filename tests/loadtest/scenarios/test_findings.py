from pathlib import Path

import pytest

from loadtest.http.client import Json
from loadtest.http.server_process import ServerProcess
from loadtest.scenarios.broken_parts import check_versions
from loadtest.scenarios.findings import findings_text, judge, why
from loadtest.scenarios.scenario import NotSeen, Scenario, wait_for

REFUSED = "no answer: [Errno 111] Connection refused"


def scenario(event: str, **report: object) -> Scenario:
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
def test_event_explains_its_own_failures_only(event: str, message: str, explained: bool) -> None:
    assert (why(event, message) is not None) == explained


@pytest.mark.parametrize(
    ("exits", "problems"),
    [
        ({"1": {"2": 5}, "2": {"1": 3}}, 0),
        ({"1": {"2": 5}, "9": {"1": 1}}, 1),
        ({"2": {"1": 5, "6": 1}}, 1),
    ],
)
def test_answer_that_its_policy_version_does_not_allow_is_a_problem(
    exits: Json, problems: int
) -> None:
    found = scenario("thresholds", exits={"by_policy_version": exits})
    check_versions(found, {1: None, 2: 1})
    assert len(found.problems) == problems


def test_event_that_does_not_happen_is_named() -> None:
    with pytest.raises(NotSeen):
        wait_for(lambda: False, "another replica", timeout_s=0)
