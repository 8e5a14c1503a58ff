from pathlib import Path

from loadtest.chaos.explanations import Event, why
from loadtest.chaos.findings import findings_text, judge
from loadtest.chaos.scenario import Pace, Scene
from loadtest.chaos.scenarios import _check_versions
from loadtest.chaos.server_processes import Family
from loadtest.http.client import Json

REFUSED = "no answer: [Errno 111] Connection refused"


def scene(event: Event, **report: object) -> Scene:
    found: Json = {
        "total": {"requests": 100, "failures": 0, "p50_ms": 5.0, "p99_ms": 20.0},
        "first_tries_failed": 0,
        "longest_gap_s": 0.2,
        "retried": {},
        "errors": {},
    }
    family = Family(leader=1)
    return Scene(event, "http://x", family, Pace(10.0, 5.0), Path("x"), report=found | report)


def test_failure_that_the_event_explains_is_no_problem() -> None:
    killed = scene("proxy killed", first_tries_failed=3, retried={REFUSED: 3})
    assert judge(killed) == []
    assert "| 3 | first | " + REFUSED in findings_text([killed])


def test_failure_without_an_explanation_is_a_problem() -> None:
    changed = scene("thresholds", first_tries_failed=1, errors={REFUSED: 1})
    assert judge(changed) == [f"unexplained failure: {REFUSED}"]
    text = findings_text([changed])
    assert "**unexplained**" in text
    assert "* thresholds: unexplained failure" in text


def test_lost_replica_excuses_no_wrong_answer() -> None:
    assert why("replica killed", "500 without JSON: Internal Server Error")
    assert why("replica killed", "no answer: Remote end closed connection without response")
    assert why("replica killed", REFUSED) is None
    assert why("replica killed", "1 results for 2 texts") is None
    assert why("controller killed", "500 without JSON: Internal Server Error") is None


def test_end_of_the_server_excuses_refusals_but_no_plain_text() -> None:
    assert why("SIGTERM", REFUSED)
    assert why("SIGTERM", "503 unavailable: the server is stopping; try again")
    assert why("SIGTERM", "404 without JSON: Path '/v1/classify' not found.") is None
    assert why("SIGTERM", "503 without JSON: This node is being drained.") is None


def test_answers_of_a_version_that_never_was_are_a_problem() -> None:
    found = scene("thresholds", exits={"by_policy_version": {"1": {"2": 5}, "9": {"1": 1}}})
    _check_versions(found, {1: None, 2: 1})
    assert found.problems == ["answers name version 9, which there never was"]


def test_answers_that_left_elsewhere_than_their_version_says_are_a_problem() -> None:
    found = scene("thresholds", exits={"by_policy_version": {"2": {"1": 5, "6": 1}}})
    _check_versions(found, {2: 1})
    assert found.problems == ["version 2 says layer 1, answers left at {'1': 5, '6': 1}"]


def test_scene_that_was_not_finished_has_its_line_too() -> None:
    broken = scene("new code")
    broken.report = {}
    broken.problems.append("two new replicas: not within 90 s")
    text = findings_text([broken])
    assert "| new code | - |" in text
    assert "* new code: two new replicas: not within 90 s" in text
