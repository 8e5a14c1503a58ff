import math

import pytest

from loadtest.http.metrics_page import Exit, Growth, MetricsPage

PAGE = """\
# TYPE offramp_requests counter
offramp_requests_total{code="200",replica="a",route="/v1/classify"} %d
offramp_requests_total{code="200",replica="b",route="/v1/classify"} %d
offramp_requests_total{code="429",replica="b",route="/v1/classify"} %d
# TYPE offramp_request_duration_seconds histogram
offramp_request_duration_seconds_bucket{le="0.1",replica="a"} %d
offramp_request_duration_seconds_bucket{le="0.2",replica="a"} %d
offramp_request_duration_seconds_bucket{le="+Inf",replica="a"} %d
offramp_request_duration_seconds_count{replica="a"} %d
offramp_request_duration_seconds_sum{replica="a"} %g
"""
BEFORE = PAGE % (10, 5, 0, 10, 10, 10, 10, 0.5)
AFTER = PAGE % (30, 6, 2, 15, 20, 20, 20, 2.5)


def growth(*pages: str) -> Growth:
    first, *later = map(MetricsPage.of, pages)
    found = Growth(first)
    for page in later:
        found.add(page)
    return found


GROWN = growth(BEFORE, AFTER).grown


def test_growth_is_that_of_all_replicas() -> None:
    assert MetricsPage.of(BEFORE).total("offramp_requests_total") == 15
    assert GROWN.by("offramp_requests_total", "code") == {"200": 21, "429": 2}
    assert GROWN.total("offramp_requests_total", code="200") == 21


def test_histogram_gives_mean_and_quantiles_within_buckets() -> None:
    spread = GROWN.spread("offramp_request_duration_seconds")
    assert (spread.count, spread.mean) == (10, 0.2)
    assert spread.p50 == 0.1
    assert math.isclose(spread.p99, 0.198)
    unknown = GROWN.spread("offramp_batch_rows")
    assert math.isnan(unknown.mean)
    assert math.isnan(unknown.p99)


def exits(**counts: float) -> str:
    """Return a page with the exits that each replica has counted."""
    lines = ["# TYPE offramp_exits_total counter"]
    for replica, count in counts.items():
        labels = f'layer="2",model="tiny",reason="confident",replica="{replica}"'
        lines.append(f"offramp_exits_total{{{labels}}} {count}")
    lines.append("# TYPE offramp_queue_rows gauge")
    lines += [f'offramp_queue_rows{{replica="{name}"}} {-n}' for name, n in counts.items()]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("pages", "counted", "ended"),
    [
        ([exits(a=10, b=5), exits(a=30, b=6)], 21, set()),
        # A replica in the place of another.
        ([exits(a=10, b=50), exits(a=20, b=60), exits(a=30), exits(a=40, c=7)], 47, {"b"}),
        # The same name, from nothing.
        ([exits(a=100), exits(a=110), exits(a=4), exits(a=9)], 19, {"a"}),
        # One that did not answer in time.
        ([exits(a=10, b=10), exits(a=20), exits(a=30, b=40)], 50, set()),
    ],
)
def test_counters_that_begin_anew_or_go_away_keep_what_they_have_counted(
    pages: list[str], counted: int, ended: set[str]
) -> None:
    found = growth(*pages)
    assert found.grown.exits() == {Exit("tiny", 2, "confident"): counted}
    assert found.ended == ended
