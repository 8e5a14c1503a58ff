"""The alerts fire on what they are for, and the operating guide says what to do then."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve.config import ServerConfig
from serve.dialects.registry import ALL, choose_dialects
from serve.http.grpc.messages import HEALTH, INFERENCE, POOL, REFLECTION
from serve.standalone import build_standalone_app
from tests.monitoring.conftest import Promtool
from tests.monitoring.promql import ALERTS, ROOT, alerts

SCENARIOS = [Path(__file__).with_name("alerts_test.yaml")]
SCENARIOS.append(Path(__file__).with_name("alerts_over_days_test.yaml"))


def outcomes(alert: str) -> list[bool]:
    """Return, for every look at an alert in the scenarios, whether it is to fire."""
    looks = [
        look
        for file in SCENARIOS
        for scenario in yaml.safe_load(file.read_text())["tests"]
        for look in scenario.get("promql_expr_test", ())
    ]
    return [bool(look["exp_samples"]) for look in looks if names(look["expr"], alert)]


def names(expr: str, alert: str) -> bool:
    asked = re.search(r'alertname=(~?)"([^"]+)"', expr)
    if asked is None:
        return expr == "ALERTS"
    return re.fullmatch(asked[2], alert) is not None


def anchors(page: str) -> set[str]:
    """Return the anchors of a Markdown page's headings."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings}


def test_prometheus_can_read_the_rules(promtool: Promtool) -> None:
    assert "SUCCESS" in promtool("check", "rules", ALERTS)


@pytest.mark.parametrize("scenarios", SCENARIOS, ids=lambda file: file.stem)
def test_alerts_fire_when_they_should_and_not_otherwise(
    scenarios: Path, promtool: Promtool
) -> None:
    assert "SUCCESS" in promtool("test", "rules", scenarios)


@pytest.mark.parametrize("alert", [rule["alert"] for rule in alerts()])
def test_every_alert_is_seen_firing_and_not_firing(alert: str) -> None:
    assert set(outcomes(alert)) == {True, False}


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_every_alert_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    path, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor == rule["alert"].lower()
    assert anchor in anchors((ROOT / path).read_text())


def test_every_sum_keeps_servers_apart() -> None:
    for rule in alerts():
        for grouping in re.findall(r"\b(?:by) \(([^)]*)\)", rule["expr"]):
            assert grouping.startswith("namespace, job"), rule["alert"]


def test_requests_that_classify_count_for_the_objectives_and_no_others(bundle_folder: Path) -> None:
    queries = (ALERTS.read_text(), (ALERTS.parent / "dashboard.json").read_text().replace("\\", ""))
    [counted] = {p for text in queries for p in re.findall(r'route=~"(/[^"]+)"', text)}
    dialects = choose_dialects([ALL])
    classify = {each.path for d in dialects for each in d.routes if each.scope == "classify"}
    services = [POOL.FindServiceByName(name) for name in (INFERENCE, HEALTH, REFLECTION)]
    calls = {f"/{each.full_name}/{method.name}" for each in services for method in each.methods}
    app = build_standalone_app(ServerConfig(bundles=[str(bundle_folder)]))
    routes = {route.path for route in app.routes} | calls | {"other"}
    infer = f"/{INFERENCE}/ModelInfer"
    assert classify < routes
    assert infer in routes
    assert {route for route in routes if re.fullmatch(counted, route)} == {*classify, infer}
