"""The metrics that the dashboard and the rules read are on the metrics page."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serve.engine.admission import QueueLimits
from serve.metrics.names import REQUEST_SECONDS
from tests.monitoring.conftest import Promtool
from tests.monitoring.promql import alerts, metrics_in, queries, rules

RECORDED = {rule["record"] for rule in rules() if "record" in rule}
# Ray Serve's own; where they are not scraped, their row in the dashboard stays closed.
RAY = {
    "ray_serve_replica_processing_queries",
    "ray_serve_deployment_replica_healthy",
    "ray_serve_event_loop_scheduling_latency_ms_bucket",
}
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}


def published(page: str) -> set[str]:
    """Return the names of all series that families of the page may have."""
    return {
        family.name + suffix
        for family in text_string_to_metric_families(page)
        for suffix in SUFFIXES.get(family.type, ("",))
    }


EXPRESSIONS = {str(query): query.expr for query in queries()}
EXPRESSIONS |= {rule.get("alert") or rule["record"]: rule["expr"] for rule in rules()}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_dashboard_and_rules_ask_for_what_there_is(name: str, page: str) -> None:
    asked = metrics_in(EXPRESSIONS[name])
    assert asked or "ALERTS" in EXPRESSIONS[name]
    assert not asked - published(page) - RECORDED - RAY


def test_everything_published_is_in_the_dashboard_or_a_rule(page: str) -> None:
    asked = set[str]().union(*map(metrics_in, EXPRESSIONS.values()))
    families = {f.name for f in text_string_to_metric_families(page)}
    assert not {name for name in families if not any(a.startswith(name) for a in asked)}


def test_objective_of_latency_is_a_bucket() -> None:
    bounds = {b for rule in rules() for b in re.findall(r'le="([^"]+)"', rule["expr"])}
    assert bounds
    assert bounds <= {str(seconds) for seconds in REQUEST_SECONDS}


def test_queue_alert_knows_the_default_limits() -> None:
    (expr,) = (a["expr"] for a in alerts() if a["alert"] == "OfframpQueueNearLimit")
    assert re.findall(r"0\.8 \* (\d+)", expr) == [
        str(QueueLimits().max_rows),
        str(QueueLimits().max_tokens),
    ]


def test_prometheus_finds_nothing_to_say_against_the_page(page: str, promtool: Promtool) -> None:
    assert promtool("check", "metrics", text=page) == ""
