import math

from loadtest.http.metrics_page import Scrape

BEFORE = """\
# TYPE offramp_requests counter
offramp_requests_total{code="200",replica="a",route="/v1/classify"} 10.0
offramp_requests_total{code="200",replica="b",route="/v1/classify"} 5.0
# TYPE offramp_request_duration_seconds histogram
offramp_request_duration_seconds_bucket{le="0.1",replica="a"} 10.0
offramp_request_duration_seconds_bucket{le="0.2",replica="a"} 10.0
offramp_request_duration_seconds_bucket{le="+Inf",replica="a"} 10.0
offramp_request_duration_seconds_count{replica="a"} 10.0
offramp_request_duration_seconds_sum{replica="a"} 0.5
"""
AFTER = """\
# TYPE offramp_requests counter
offramp_requests_total{code="200",replica="a",route="/v1/classify"} 30.0
offramp_requests_total{code="200",replica="b",route="/v1/classify"} 6.0
offramp_requests_total{code="429",replica="b",route="/v1/classify"} 2.0
# TYPE offramp_request_duration_seconds histogram
offramp_request_duration_seconds_bucket{le="0.1",replica="a"} 15.0
offramp_request_duration_seconds_bucket{le="0.2",replica="a"} 20.0
offramp_request_duration_seconds_bucket{le="+Inf",replica="a"} 20.0
offramp_request_duration_seconds_count{replica="a"} 20.0
offramp_request_duration_seconds_sum{replica="a"} 2.5
"""
MOVED = Scrape.of(AFTER).since(Scrape.of(BEFORE))


def test_replicas_are_added_up() -> None:
    assert Scrape.of(BEFORE).total("offramp_requests_total") == 15


def test_difference_is_what_happened_meanwhile() -> None:
    assert MOVED.by("offramp_requests_total", "code") == {"200": 21, "429": 2}
    assert MOVED.total("offramp_requests_total", code="200") == 21


def test_histogram_gives_mean_and_quantiles_within_buckets() -> None:
    spread = MOVED.spread("offramp_request_duration_seconds")
    assert (spread.count, spread.mean) == (10, 0.2)
    assert spread.p50 == 0.1
    assert math.isclose(spread.p99, 0.198)


def test_what_was_not_measured_is_no_number() -> None:
    assert math.isnan(MOVED.spread("offramp_batch_rows").mean)
    assert math.isnan(MOVED.spread("offramp_batch_rows").p99)
