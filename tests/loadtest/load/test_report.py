import json
from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.http.client import Json
from loadtest.http.metrics_page import MetricsPage
from loadtest.load.figures import Run, document, problems
from loadtest.load.plans import Limits, Ramp, Reading, Step
from loadtest.load.report import write_report
from loadtest.load.samples import LoggedRequest, Outcome, Samples
from loadtest.load.texts import Example

FACTS = {"date": "today", "command": "python -m loadtest.load"}


def answered(layer: int = 2, label: str | None = None, version: int = 1) -> LoggedRequest:
    reply: Json = {
        "model": "tiny",
        "policy_version": version,
        "results": [
            {"label": "positive", "exit": {"layer": layer, "layers": 6, "reason": "confident"}}
        ],
        "timing": {"queue_ms": 1.0, "compute_ms": 2.0, "total_ms": 4.0},
    }
    return LoggedRequest([Example("text", label)], late_ms=0.5, outcome=Outcome(200, reply=reply))


def failed() -> LoggedRequest:
    return LoggedRequest([Example("text")], late_ms=0.0, outcome=Outcome(503, "503 busy"))


def run(*requests: LoggedRequest, **facts: object) -> Run:
    """Return a run with a request of kind `default` a second, answered after 10, 20, ... ms."""
    samples = Samples(labels=("negative", "positive"))
    for place, logged in enumerate(requests):
        samples.add("default", float(place), 10.0 * (place + 1), logged)
    return Run(samples, float(len(requests)), **facts)  # type: ignore[arg-type]


def counted(num_answers: int, by_server: int, num_failed: int = 0, **facts: object) -> Run:
    """Return a run in which the server counted so many exits."""
    exit_ = {"model": "tiny", "layer": "2", "reason": "confident"}
    metrics = MetricsPage({("offramp_exits_total", frozenset(exit_.items())): float(by_server)})
    requests = [answered() for _ in range(num_answers)] + [failed() for _ in range(num_failed)]
    return run(*requests, metrics=metrics, **facts)


@pytest.mark.parametrize(
    ("run", "alone", "shared"),
    [
        (counted(10, 10), None, None),
        (counted(0, 0), "no request was answered", "no request was answered"),
        (counted(10, 10, 1), "1 of 11 requests failed", "1 of 11 requests failed"),
        (counted(11, 10), *["the server did not count 1 exits that its answers name"] * 2),
        (counted(10, 11), "the server counted 1 exits that no answer names", None),
        (counted(11, 10, ended_replicas=frozenset({"b"})), None, None),
    ],
)
def test_a_run_fails_for_these_reasons(run: Run, alone: str | None, shared: str | None) -> None:
    assert problems(run, exclusive=True) == ([alone] if alone else [])
    assert problems(run, exclusive=False) == ([shared] if shared else [])


def test_figures_of_answers_failures_and_second_tries() -> None:
    again = answered(layer=6, label="0", version=2)
    again.earlier.append("503 busy")
    one = run(answered(label="1"), again, failed(), answered(layer=6, version=2), failed())
    one.samples.add("batch", 0.0, 5.0, answered())
    found = document(one)
    kinds = [(k["kind"], k["requests"], k["failures"], k["p50_ms"]) for k in found["kinds"]]
    assert kinds == [("batch", 1, 0, 5.0), ("default", 5, 2, 20.0)]
    assert found["total"]["per_second"] == 4 / 5
    assert found["exits"]["by_layer"] == {1: 0, 2: 2, 3: 0, 4: 0, 5: 0, 6: 2}
    assert found["exits"]["by_policy_version"] == {1: {2: 2}, 2: {6: 2}}
    assert found["exits"]["layers_saved"] == pytest.approx(1 / 3)
    assert found["exits"]["counted_by_server"] is None
    assert found["accuracy"] == 0.5
    assert (found["first_tries_failed"], found["retried"]) == (3, {"503 busy": 1})
    assert (found["first_failure_s"], found["errors"]) == (2.0, {"default: 503 busy": 2})
    # Silence counts, up to when the last request began.
    assert found["longest_gap_s"] == pytest.approx(3.04 - 1.02)
    assert found["client"]["server_total"]["p99"] == 4.0


@pytest.mark.parametrize("answer", [{"value": 2.5}, {"labels": ["a"], "label": "a"}])
def test_answers_of_other_tasks_are_not_judged_by_one_label(answer: Json) -> None:
    logged = answered(label="2.5")
    assert logged.outcome is not None
    reply = logged.outcome.reply
    assert reply is not None
    reply["results"] = [{"exit": reply["results"][0]["exit"], **answer}]
    found = document(run(logged))
    assert found["accuracy"] is None
    assert not found["errors"]


@pytest.mark.parametrize(
    ("status", "content", "problem", "transient"),
    [
        (429, b'{"error": "busy"}', "429 busy", True),
        (422, b'{"error": "long"}', "422 long", False),
        (502, b"<html>", "502 without JSON: <html>", True),
        (200, b'{"results": []}', "0 results for 1 texts", False),
        (200, b'{"results": [1]}', "", False),
    ],
)
def test_an_outcome_says_what_went_wrong_and_whether_another_try_may_help(
    status: int, content: bytes, problem: str, transient: bool
) -> None:
    outcome = Outcome.of(status, content, {"retry-after": "3"}, 1)
    assert (outcome.problem, outcome.transient) == (problem, transient)
    assert (outcome.retry_after_s == 3.0) == (status in (429, 422))


def asked(
    requests: int = 100,
    running: int = 4,
    late_ms: float = 1.0,
    generator_cpu_s: float = 2.0,
    rate_per_user: float | None = 2.5,
) -> Run:
    """Return ten seconds for which four users and ten requests a second were asked for."""
    logged = [replace(answered(), late_ms=late_ms) for _ in range(requests)]
    moments = [0.5 * n for n in range(21)]
    return replace(
        run(*logged),
        seconds=10.0,
        users=[(at_s, running) for at_s in moments],
        wanted_users=[4] * len(moments),
        rate_per_user=rate_per_user,
        generator_cpu_s=generator_cpu_s,
    )


@pytest.mark.parametrize(
    ("run", "sentences"),
    [
        (asked(), []),
        (asked(rate_per_user=None, requests=3), []),
        (asked(running=3), ["only 75% of the users ran"]),
        (asked(requests=80), ["80 of 100 requests were made"]),
        (asked(late_ms=400.0), ["one request in twenty was sent 400 ms late or more"]),
        (asked(generator_cpu_s=9.0), ["the load generator was at the limit of its processor"]),
        (asked(requests=0), ["0 of 100 requests were made"]),
        (Run(Samples(), 0.0), []),
    ],
)
def test_a_load_that_fell_short_is_named(run: Run, sentences: list[str], tmp_path: Path) -> None:
    assert document(run)["fell_short"] == sentences
    _, printed = write_report(run, FACTS, tmp_path)
    assert ("The load fell short" in printed) == bool(sentences)


def test_the_folder_has_words_and_numbers(tmp_path: Path) -> None:
    ramp = Ramp(2, 2.0, 8.0, Limits(500, 0.01, 2), lambda: Reading(0.0, 0, 0, {}))
    ramp.steps += [Step(1, None, 50.0, 5.0, 9.0, 0.0), Step(2, None, 90.0, 6.0, 20.0, 0.0)]
    costly = run(*[answered()] * 200, failed(), server_cpu_s=3.0, ramp=ramp)
    path, summary = write_report(costly, FACTS, tmp_path / "report")
    words = path.read_text()
    found = json.loads((path.parent / "report.json").read_text())
    assert found["total"]["requests"] == 201
    assert found["cost"]["server_cpu_s_per_1000"] == pytest.approx(3000 / 201)
    assert summary in words
    for line in ("| 1 | default: 503 busy |", "| 2 | - | 90.0 | 6.00 | 20.0 | 0.0 % | knee |"):
        assert line in summary


def test_a_run_without_an_answer_has_a_report_too(tmp_path: Path) -> None:
    path, _ = write_report(run(failed()), FACTS, tmp_path)
    found = json.loads((path.parent / "report.json").read_text())
    assert found["exits"]["mean_layer"] is None
    assert found["client"]["due_to_answer"]["p99"] is None
