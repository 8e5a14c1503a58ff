import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from serve.engine.row import Answer, BatchStats
from serve.metrics import metrics as metrics_module
from serve.metrics.metrics import Metrics, ModelObserver
from serve.metrics.names import REQUEST_SECONDS, ROWS, STAGE_SECONDS
from serve.rules.criterion import Reason
from serve.rules.traits import Traits
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
DEPTH, EXITS = 6, Traits((2, 4, 6), ("a", "b"))


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(DEPTH)


@pytest.fixture
def observer(metrics: Metrics) -> ModelObserver:
    return metrics.observer("m", EXITS)


def answer(exit_index: int, reason: Reason = Reason.CONFIDENT, queue_s: float = 0.25) -> Answer:
    return Answer(np.zeros(2, np.float32), exit_index, reason, 0.1, queue_s, 0.5, exit_index)


def samples(metrics: Metrics) -> list[Any]:
    families = text_string_to_metric_families(metrics.page().decode())
    return [sample for family in families for sample in family.samples]


def value(metrics: Metrics, name: str, **labels: str) -> float:
    found = [s for s in samples(metrics) if s.name == f"offramp_{name}"]
    return sum(s.value for s in found if labels.items() <= s.labels.items())


def models(metrics: Metrics) -> set[str]:
    return {sample.labels["model"] for sample in samples(metrics) if "model" in sample.labels}


def work(metrics: Metrics, observer: ModelObserver, model: str = "m") -> None:
    """Count one of each."""
    observer.answer(answer(2, Reason.FINAL), num_tokens=10)
    observer.batch(BatchStats(1, 3, 20, 24, segment_s=0.5, judge_s=0.125))
    observer.tokenized(0.5)
    metrics.request(model, "/v1/classify", 200, 0.5)
    metrics.rejected(model, "rate_limited")
    metrics.disconnected(model)


def test_page_has_exactly_the_documented_names(metrics: Metrics) -> None:
    families = text_string_to_metric_families(metrics.page().decode())
    assert {family.name for family in families} == NAMES
    assert value(metrics, "build_info", version=__version__) == 1


@pytest.mark.parametrize(
    ("name", "labels", "number"),
    [
        ("exits_total", {"layer": "2", "reason": "confident"}, 1),
        ("exits_total", {"layer": "2", "reason": "patience"}, 1),
        ("exits_total", {"layer": "6", "reason": "final"}, 1),
        ("exit_layer_sum", {}, 2 + 2 + 6),
        ("exit_layer_bucket", {"le": "2.0"}, 2),
        ("layers_run_total", {}, 10),
        ("layers_saved_total", {}, 4 + 4),
        ("input_tokens_total", {}, 30),
        ("stage_duration_seconds_sum", {"stage": "queue"}, 0.75),
        ("stage_duration_seconds_sum", {"stage": "segment"}, 0.5),
        ("stage_duration_seconds_sum", {"stage": "judge"}, 0.125),
        ("stage_duration_seconds_sum", {"stage": "tokenize"}, 0.5),
        ("segment_duration_seconds_sum", {"layer": "4"}, 0.5),
        ("batch_rows_sum", {"layer": "4"}, 3),
        ("batch_tokens_total", {"layer": "4"}, 20),
        ("padding_tokens_total", {"layer": "4"}, 4),
        ("requests_total", {"route": "/v1/classify", "code": "200"}, 1),
        ("request_duration_seconds_sum", {"route": "/v1/classify"}, 0.5),
        ("rejected_total", {"code": "rate_limited"}, 1),
        ("client_disconnects_total", {}, 1),
    ],
)
def test_work_is_counted(
    name: str, labels: dict[str, str], number: float, metrics: Metrics, observer: ModelObserver
) -> None:
    work(metrics, observer)
    for reason in (Reason.CONFIDENT, Reason.PATIENCE):
        observer.answer(answer(0, reason), num_tokens=10)
    assert value(metrics, name, model="m", **labels) == number
    assert value(metrics, name, model="other", **labels) == 0


def test_exit_layer_has_a_bucket_for_0_and_each_layer_of_the_deepest(
    metrics: Metrics,
) -> None:
    metrics.observer("small", Traits((1, 2), ("a", "b"))).answer(answer(1), num_tokens=1)
    layers = [s.labels["le"] for s in samples(metrics) if s.name == "offramp_exit_layer_bucket"]
    assert layers == [*(f"{layer}.0" for layer in range(DEPTH + 1)), "+Inf"]


def test_what_alerts_must_see_before_it_happens_is_on_the_page_at_zero(
    metrics: Metrics, observer: ModelObserver
) -> None:
    found = [(s.name, s.labels.get("code")) for s in samples(metrics) if s.value == 0]
    for model in ("", "m"):
        assert value(metrics, "rejected_total", model=model, code="overloaded") == 0
    assert ("offramp_rejected_total", "overloaded") in found
    assert ("offramp_client_disconnects_total", None) in found
    assert not any(name.startswith("offramp_request") for name, _ in found), "no route is used"
    metrics.request("m", "/v1/classify", 200, 0.1)
    codes = {s.labels["code"] for s in samples(metrics) if s.name == "offramp_requests_total"}
    assert codes == {"200", "500", "502", "503"}


def test_a_model_that_is_gone_is_forgotten_after_a_while(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = [SimpleNamespace(name="m"), SimpleNamespace(name="other")]
    monkeypatch.setattr(metrics_module, "model_samples", lambda *_: ())
    metrics.watch(served)  # type: ignore[arg-type]
    for name in ("m", "other"):
        work(metrics, metrics.observer(name, EXITS), name)
    metrics.request("", "other", 404, None)
    served.pop(0)
    assert models(metrics) == {"", "m", "other"}, "Prometheus has not seen the last of it"
    monkeypatch.setattr(metrics_module, "FORGET_AFTER_S", 0.0)
    assert models(metrics) == {"", "other"}
    work(metrics, metrics.observer("m", EXITS))
    work(metrics, metrics.observer("other", EXITS), "other")
    served.append(SimpleNamespace(name="m"))
    assert value(metrics, "requests_total", model="m", code="200") == 1
    assert value(metrics, "requests_total", model="other", code="200") == 2


@pytest.mark.parametrize(
    ("buckets", "first", "last"),
    [(REQUEST_SECONDS, 0.00025, 30), (STAGE_SECONDS, 0.00001, 5), (ROWS, 1, 512)],
)
def test_buckets_ascend_in_steps_of_at_most_two(
    buckets: tuple[float, ...], first: float, last: float
) -> None:
    assert all(1 < upper / lower <= 2.1 for lower, upper in itertools.pairwise(buckets))
    assert buckets[0] <= first
    assert last <= buckets[-1] < float("inf")
