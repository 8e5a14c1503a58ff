import itertools
import math
import re

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from serve.engine.row import Answer, BatchStats
from serve.metrics.collectors import REQUEST_SECONDS, ROWS, STAGE_SECONDS, Metrics
from serve.rules.reason import Reason
from serve.version import __version__

NAMES = {
    "offramp_build_info",
    "offramp_client_disconnects",
    "offramp_exit_layer",
    "offramp_exits",
    "offramp_input_tokens",
    "offramp_layers_run",
    "offramp_layers_saved",
    "offramp_padding_tokens",
    "offramp_rejected",
    "offramp_request_duration_seconds",
    "offramp_requests",
    "offramp_segment_duration_seconds",
    "offramp_stage_duration_seconds",
    "offramp_batch_rows",
    "offramp_batch_tokens",
}


EXITS = {"m": (2, 4, 6), "small": (1, 2)}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(EXITS)


def answer(exit_index: int, reason: Reason = Reason.CONFIDENT, queue_s: float = 0.25) -> Answer:
    return Answer(np.zeros(2, np.float32), exit_index, reason, 0.1, queue_s, 0.5, exit_index)


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return sum(
        sample.value
        for family in text_string_to_metric_families(metrics.page().decode())
        for sample in family.samples
        if sample.name == f"offramp_{name}" and labels.items() <= sample.labels.items()
    )


def series(metrics: Metrics) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    families = text_string_to_metric_families(metrics.page().decode())
    return {(s.name, frozenset(s.labels.items())) for family in families for s in family.samples}


def test_whatever_may_be_counted_is_on_the_page_before_it_is(metrics: Metrics) -> None:
    observers = {name: metrics.observer(name) for name in EXITS}
    metrics.expect(["/v1/classify"])
    families = text_string_to_metric_families(metrics.page().decode())
    assert [family.name for family in families if not family.samples] == []
    before = series(metrics)
    for name, observer in observers.items():
        for exit_index, reason in itertools.product(range(len(EXITS[name])), Reason):
            if reason is not Reason.STAYS:
                observer.answer(answer(exit_index, reason), num_tokens=1)
            observer.batch(BatchStats(exit_index, 1, 1, 1, 0.1, 0.1))
        observer.tokenized(0.1)
        metrics.disconnected(name)
        for status in (200, 429, 499, 500, 503, 504):
            metrics.request(name, "/v1/classify", status, 0.1)
    for name, code in itertools.product(("", *EXITS), ("overloaded", "rate_limited", "internal")):
        metrics.rejected(name, code)
    for status in (401, 403, 408, 429, 500, 503):
        metrics.request("", "/v1/classify", status, None)
    assert series(metrics) == before


def test_page_has_exactly_the_documented_names(metrics: Metrics) -> None:
    families = text_string_to_metric_families(metrics.page().decode())
    assert {family.name for family in families} == NAMES


def test_answers_are_counted_at_their_layer_with_their_reason(metrics: Metrics) -> None:
    observer = metrics.observer("m")
    for exit_index, reason in ((0, Reason.CONFIDENT), (0, Reason.PATIENCE), (2, Reason.FINAL)):
        observer.answer(answer(exit_index, reason), num_tokens=10)
    assert value(metrics, "exits_total", model="m", layer="2", reason="confident") == 1
    assert value(metrics, "exits_total", model="m", layer="2", reason="patience") == 1
    assert value(metrics, "exits_total", model="m", layer="6", reason="final") == 1
    assert value(metrics, "exit_layer_sum") == 2 + 2 + 6
    assert value(metrics, "exit_layer_bucket", le="2.0") == 2
    assert value(metrics, "layers_run_total", model="m") == 10
    assert value(metrics, "layers_saved_total", model="m") == 4 + 4 + 0
    assert value(metrics, "input_tokens_total", model="m") == 30
    assert value(metrics, "stage_duration_seconds_sum", stage="queue") == 0.75


def test_exit_layer_has_one_bucket_per_layer_of_the_deepest_model(metrics: Metrics) -> None:
    metrics.observer("small").answer(answer(1), num_tokens=1)
    found = r'offramp_exit_layer_bucket{le="([^"]+)",model="small",reason="confident"'
    bounds = re.findall(found, metrics.page().decode())
    assert bounds == ["1.0", "2.0", "3.0", "4.0", "5.0", "6.0", "+Inf"]
    assert value(metrics, "exits_total", model="m") == 0
    assert value(metrics, "exits_total", model="small", layer="2") == 1


def test_batches_are_counted_at_the_layer_their_segment_ends_at(metrics: Metrics) -> None:
    stats = BatchStats(
        exit_index=1, num_rows=3, num_tokens=20, padded_tokens=24, segment_s=0.5, judge_s=0.125
    )
    metrics.observer("m").batch(stats)
    assert value(metrics, "batch_rows_sum", model="m", layer="4") == 3
    assert value(metrics, "batch_tokens_total", layer="4") == 20
    assert value(metrics, "padding_tokens_total", layer="4") == 4
    assert value(metrics, "segment_duration_seconds_sum", layer="4") == 0.5
    assert value(metrics, "stage_duration_seconds_sum", stage="segment") == 0.5
    assert value(metrics, "stage_duration_seconds_sum", stage="judge") == 0.125


def test_requests_errors_and_disconnects_are_counted(metrics: Metrics) -> None:
    metrics.request("m", "/v1/classify", 200, 0.5)
    metrics.request("", "other", 404, None)
    metrics.rejected("m", "overloaded")
    metrics.disconnected("m")
    metrics.observer("m").tokenized(0.5)
    assert value(metrics, "requests_total", model="m", code="200") == 1
    assert value(metrics, "requests_total", model="", route="other", code="404") == 1
    assert value(metrics, "request_duration_seconds_sum", route="/v1/classify") == 0.5
    assert value(metrics, "rejected_total", model="m", code="overloaded") == 1
    assert value(metrics, "client_disconnects_total", model="m") == 1
    assert value(metrics, "stage_duration_seconds_sum", model="m", stage="tokenize") == 0.5


@pytest.mark.parametrize("buckets", [REQUEST_SECONDS, STAGE_SECONDS, ROWS])
def test_buckets_ascend_in_steps_of_at_most_two(buckets: tuple[float, ...]) -> None:
    for lower, upper in itertools.pairwise(buckets):
        assert 1 < upper / lower <= 2.1
    assert all(math.isfinite(bound) for bound in buckets)


def test_durations_are_covered_from_a_fast_segment_to_a_slow_request() -> None:
    assert (STAGE_SECONDS[0], REQUEST_SECONDS[0]) <= (0.00001, 0.00025)
    assert STAGE_SECONDS[-1] >= 5
    assert REQUEST_SECONDS[-1] >= 30


def test_two_processes_have_the_same_series_and_say_which_version_runs(metrics: Metrics) -> None:
    assert metrics.page() == Metrics({"m": (2, 4, 6), "small": (1, 2)}).page()
    assert value(metrics, "build_info", version=__version__) == 1
