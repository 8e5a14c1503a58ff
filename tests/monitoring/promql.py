"""Queries as they stand in the dashboard and in the rules."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
FILES = ROOT / "helm" / "offramp" / "files"
DASHBOARD, ALERTS = FILES / "dashboard.json", FILES / "alerts.yaml"

# What Grafana puts in the place of its variables when everything is selected.
VARIABLES = {"job": ".*", "model": ".*", "replica": ".*"}
INTERVALS = {"__rate_interval": "30s"}


class Query(NamedTuple):
    """A query of the dashboard, its variables filled in, and the labels its legend names."""

    panel: str
    expr: str
    legend: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.panel}: {self.expr}"


@cache
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def panels(found: list[dict[str, Any]] | None = None) -> Iterator[dict[str, Any]]:
    """Yield every panel, those of collapsed rows too, without the rows."""
    for panel in dashboard()["panels"] if found is None else found:
        if panel["type"] == "row":
            yield from panels(panel["panels"])
        else:
            yield panel


def queries() -> Iterator[Query]:
    """Yield what panels and annotations ask Prometheus for."""
    for panel in panels():
        for target in panel["targets"]:
            legend = tuple(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            yield Query(panel["title"], filled_in(target["expr"]), legend)
    for annotation in dashboard()["annotations"]["list"]:
        if "expr" in annotation:
            yield Query(annotation["name"], filled_in(annotation["expr"]))


def filled_in(expr: str) -> str:
    values = VARIABLES | INTERVALS
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expr)


@cache
def rules() -> tuple[dict[str, Any], ...]:
    """Return the recording rules and alerts."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return tuple(rule for group in groups for rule in group["rules"])


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def metrics_in(expr: str) -> set[str]:
    """Return the metrics that a query reads: ours, and Ray's."""
    return set(re.findall(r"\b(?:offramp[_:]|ray_)[a-z0-9_:]+", expr))
