from collections import Counter
from dataclasses import replace

import pytest

from loadtest.http.metrics_page import Exit, MetricsPage
from loadtest.load.figures import Figures, problems
from loadtest.load.samples import Samples
from tests.loadtest.load.test_samples import answered, failed


def run(num_answers: int = 10, counted: int = 10, num_failed: int = 0) -> Figures:
    """Return a run in which the server counted so many exits."""
    samples = Samples()
    for _ in range(num_answers):
        samples.add("default", 0.0, 5.0, answered(layer=2))
    for _ in range(num_failed):
        samples.add("default", 0.0, 5.0, failed())
    exit_ = {"model": "tiny", "layer": "2", "reason": "confident"}
    values = {("offramp_exits_total", frozenset(exit_.items())): float(counted)}
    return Figures(samples, 1.0, metrics=MetricsPage(values))


@pytest.mark.parametrize(
    ("figures", "alone", "shared"),
    [
        (run(), None, None),
        (run(0, 0), "no request was answered", "no request was answered"),
        (run(10, 10, 1), "1 of 11 requests failed", "1 of 11 requests failed"),
        (run(11, 10), *["the server did not count 1 exits that its answers name"] * 2),
        (run(10, 11), "the server counted 1 exits that no answer names", None),
    ],
)
def test_run_fails_for_these_reasons(
    figures: Figures, alone: str | None, shared: str | None
) -> None:
    assert problems(figures, exclusive=True) == ([alone] if alone else [])
    assert problems(figures, exclusive=False) == ([shared] if shared else [])


def test_what_an_ended_replica_counted_is_no_failure() -> None:
    figures = replace(run(11, 10), ended_replicas=frozenset({"b"}))
    assert problems(figures, exclusive=False) == []


def test_kinds_add_up() -> None:
    samples = Samples()
    for place, kind in enumerate(("batch", "default", "default")):
        samples.add(kind, 0.0, 10.0 * (place + 1), answered())
    samples.add("batch", 0.0, 1.0, failed())
    figures = Figures(samples, 2.0)
    assert [(k.kind, k.requests, k.failures, k.p50_ms) for k in figures.kinds] == [
        ("batch", 2, 1, 10.0),
        ("default", 2, 0, 25.0),
    ]
    assert (figures.total.requests, figures.total.per_second) == (4, 1.5)
    assert figures.seen == Counter({Exit("tiny", 2, "confident"): 3})
    assert figures.counted is None
