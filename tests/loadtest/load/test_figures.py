from collections import Counter
from dataclasses import replace

from loadtest.http.exit_counts import Exit
from loadtest.load.figures import Figures, Latency, problems

SEEN = Counter({Exit("tiny", 2, "confident"): 8, Exit("tiny", 6, "final"): 2})
MORE = Counter({Exit("tiny", 6, "final"): 1})
ALL = Latency("all", 10, 0, 5.0, 9.0, 9.0, 100.0)
GOOD = Figures(kinds=(ALL,), total=ALL, seen=SEEN, counted=SEEN)


def test_answered_and_counted_run_has_no_problem() -> None:
    assert problems(GOOD, exclusive=True) == []


def test_run_without_requests_is_a_failure() -> None:
    empty = Figures(kinds=(), total=replace(ALL, requests=0))
    assert problems(empty, exclusive=True) == ["no request was answered"]


def test_failed_request_is_a_failure() -> None:
    failed = replace(GOOD, total=replace(ALL, failures=1), errors={"all: 500": 1})
    assert problems(failed, exclusive=False) == ["1 of 10 requests failed"]


def test_exit_that_the_server_did_not_count_is_a_failure() -> None:
    found = problems(replace(GOOD, seen=SEEN + MORE), exclusive=False)
    assert found == ["the server did not count 1 exits that its answers name"]


def test_other_clients_exits_are_a_failure_only_without_other_clients() -> None:
    surplus = replace(GOOD, counted=SEEN + MORE)
    assert problems(surplus, exclusive=False) == []
    assert problems(surplus, exclusive=True) == ["the server counted 1 exits that no answer names"]
