import pytest

from loadtest.http.client import Json
from loadtest.load.request_log import LoggedRequest, Outcome
from loadtest.load.samples import Samples
from loadtest.load.texts import Example


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


def test_answers_are_counted_by_layer_and_version_and_judged_by_known_labels() -> None:
    samples = Samples(labels=("negative", "positive"))
    assert samples.accuracy is None
    for label, layer, version in (("1", 2, 1), ("0", 6, 2), (None, 6, 2)):
        samples.add("default", 0.1, 5.0, answered(layer, label, version))
    assert samples.accuracy == 0.5
    assert sum(samples.seen.values()) == 3
    assert samples.versions == {1: {2: 1}, 2: {6: 2}}
    assert samples.layers == 6


@pytest.mark.parametrize("answer", [{"value": 2.5}, {"labels": ["a"], "label": "a"}])
def test_answers_of_other_tasks_are_not_judged_by_one_label(answer: dict[str, object]) -> None:
    samples = Samples(labels=("a", "b"))
    logged = answered(label="2.5")
    reply = logged.outcome.reply
    reply["results"] = [{"exit": reply["results"][0]["exit"], **answer}]
    samples.add("default", 0.1, 5.0, logged)
    assert samples.accuracy is None
    assert not samples.errors


def test_second_try_hides_no_first_failure() -> None:
    samples = Samples()
    again = answered()
    again.earlier.append("503 busy")
    samples.add("default", 0.0, 300.0, again)
    samples.add("default", 4.0, 5.0, failed())
    assert samples.first_failed == 2
    assert samples.retried == {"503 busy": 1}
    assert samples.errors == {"default: 503 busy": 1}
    assert samples.first_failure_s == 4.0


def test_silence_at_the_end_counts() -> None:
    samples = Samples()
    samples.add("default", 1.0, 0.0, answered())
    samples.add("default", 9.0, 1.0, failed())
    assert samples.longest_gap_s == 8.0
