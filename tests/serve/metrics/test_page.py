import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from serve.engine.row import Answer
from serve.errors import OfframpError
from serve.metrics.metrics import Metrics
from serve.metrics.page import ReplicaCount, merge_pages
from serve.rules.criterion import Reason
from serve.rules.traits import Traits


def page(answers: int, layer_index: int = 0) -> str:
    metrics = Metrics(3)
    observer = metrics.observer("m", Traits((1, 2, 3), ("a", "b")))
    for _ in range(answers):
        observer.answer(
            Answer(np.zeros(2, np.float32), layer_index, Reason.LAYER, 0.0, 0.25, 0.5, layer_index),
            7,
        )
    return metrics.page().decode()


def merged(unreachable: int = 0, **pages: str) -> str:
    return merge_pages(pages, unreachable, ReplicaCount(wanted=3, running=2)).decode()


def total(text: str, name: str, **labels: str) -> float:
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def test_every_replica_is_on_the_page_and_sums_over_replicas_are_exact() -> None:
    text = merged(a=page(3, 0), b=page(4, 2))
    assert total(text, "offramp_exits_total", replica="a") == 3
    assert total(text, "offramp_exits_total", replica="b") == 4
    assert total(text, "offramp_exit_layer_count") == 7
    assert total(text, "offramp_exit_layer_sum") == 3 * 1 + 4 * 3
    assert total(text, "offramp_exit_layer_bucket", le="1.0") == 3
    assert total(text, "offramp_exit_layer_bucket", le="3.0") == 7
    assert total(text, "offramp_exit_layer_bucket", le="+Inf") == 7


def test_every_family_is_declared_once_with_its_type() -> None:
    text = merged(a=page(1), b=page(2))
    declared = [line for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(declared) == len(set(declared))
    assert "# TYPE offramp_exits_total counter" in declared
    assert "# TYPE offramp_exit_layer histogram" in declared
    assert "# HELP offramp_exits_total Answers by exit layer and reason." in text


def test_nothing_but_the_replica_is_added_to_a_page() -> None:
    original = page(2)
    families = {f.name: f for f in text_string_to_metric_families(merged(a=original))}
    for family in text_string_to_metric_families(original):
        expected = [(s.name, {**s.labels, "replica": "a"}, s.value) for s in family.samples]
        found = [(s.name, s.labels, s.value) for s in families[family.name].samples]
        assert found == expected
    own = {f"offramp_replicas_{n}" for n in ("wanted", "running", "scraped", "unreachable")}
    assert set(families) == own | {f.name for f in text_string_to_metric_families(original)}


def test_replicas_with_and_without_a_page_are_counted() -> None:
    for pages, unreachable in (({"a": page(0), "b": page(0)}, 2), ({}, 1)):
        text = merged(unreachable, **pages)
        assert total(text, "offramp_replicas_scraped") == len(pages)
        assert total(text, "offramp_replicas_unreachable") == unreachable
        assert total(text, "offramp_replicas_wanted") == 3
        assert total(text, "offramp_replicas_running") == 2


def test_odd_label_values_survive() -> None:
    metrics = Metrics()
    metrics.rejected('a "quoted"\\ näme', OfframpError.code)
    text = merged(a=metrics.page().decode())
    assert total(text, "offramp_rejected_total", model='a "quoted"\\ näme') == 1
