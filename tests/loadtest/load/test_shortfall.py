"""A load that was smaller than asked for is not reported as if it had been whole."""

import pytest

from loadtest.load.figures import Figures, RunCost, shortfalls
from loadtest.load.report import document, summary
from loadtest.load.samples import Samples
from tests.loadtest.load.test_samples import answered


def run(
    requests: int = 100,
    running: int = 4,
    late_ms: float = 1.0,
    generator_cpu_s: float = 2.0,
    rate_per_user: float | None = 2.5,
) -> Figures:
    """Return ten seconds for which four users and ten requests a second were asked for."""
    samples = Samples()
    for place in range(requests):
        logged = answered()
        logged.late_ms = late_ms
        samples.add("default", 10 * place / requests, 5.0, logged)
    moments = [0.5 * n for n in range(21)]
    return Figures(
        samples,
        10.0,
        users=[(at_s, running) for at_s in moments],
        wanted_users=[4] * len(moments),
        rate_per_user=rate_per_user,
        cost=RunCost(generator_cpu_s),
    )


@pytest.mark.parametrize(
    ("figures", "sentences"),
    [
        (run(), []),
        (run(rate_per_user=None, requests=3), []),
        (run(running=3), ["only 75% of the users ran"]),
        (run(requests=80), ["80 of 100 requests were made"]),
        (run(late_ms=400.0), ["one request in twenty was sent 400 ms late or more"]),
        (run(generator_cpu_s=9.0), ["the load generator was at the limit of its processor"]),
        (run(requests=0), ["0 of 100 requests were made"]),
        (Figures(Samples(), 0.0), []),
    ],
)
def test_load_that_fell_short_is_named(figures: Figures, sentences: list[str]) -> None:
    assert shortfalls(figures) == sentences
    printed = summary(document(figures), None)
    assert ("The load fell short" in printed) == bool(sentences)
