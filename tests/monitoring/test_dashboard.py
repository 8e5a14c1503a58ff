"""The dashboard is one that Grafana can show."""

import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring.conftest import Promtool
from tests.monitoring.promql import DASHBOARD, dashboard, panels, queries

# The newest that Grafana 11 writes; later ones read it.
SCHEMA_VERSION = 39
KINDS = {"heatmap", "stat", "state-timeline", "table", "timeseries"}
UNITS = {"ms", "ops", "percentunit", "reqps", "s", "short"}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24

Panel = dict[str, Any]


def all_panels() -> list[Panel]:
    """Return rows and panels, those of closed rows too."""
    return [inner for p in dashboard()["panels"] for inner in (p, *p.get("panels", ()))]


def area(panel: Panel) -> set[tuple[int, int]]:
    at = panel["gridPos"]
    xs = range(at["x"], at["x"] + at["w"])
    return set(itertools.product(xs, range(at["y"], at["y"] + at["h"])))


def test_dashboard_can_be_imported() -> None:
    ids = [panel["id"] for panel in all_panels()]
    assert len(ids) == len(set(ids))
    assert dashboard()["uid"] == "offramp"
    assert "id" not in dashboard(), "the database's own number, which an import must not bring"
    assert dashboard()["schemaVersion"] == SCHEMA_VERSION
    assert "{{ " not in DASHBOARD.read_text(), "Helm would take it for a value of the chart"


def test_panels_neither_overlap_nor_leave_the_page() -> None:
    cells = Counter(cell for panel in all_panels() for cell in area(panel))
    assert all(area(panel) for panel in all_panels())
    assert set(cells.values()) == {1}
    assert max(x for x, _ in cells) < COLUMNS


@pytest.mark.parametrize(
    "panel", list(panels()), ids=lambda panel: f"{panel['id']} {panel['title']}"
)
def test_every_panel_is_of_a_known_kind_and_explains_itself(panel: Panel) -> None:
    assert panel["type"] in KINDS
    assert panel["datasource"] == SOURCE
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    refs = [target["refId"] for target in panel["targets"]]
    assert refs
    assert len(refs) == len(set(refs))
    assert all(target["datasource"] == SOURCE for target in panel["targets"])


def test_variables_that_are_used_are_defined_and_the_other_way_round() -> None:
    defined = {variable["name"] for variable in dashboard()["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text())) - {"__rate_interval", "__all"}
    assert used == defined == {"datasource", "job", "model", "replica"}
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":  # `All` includes servers without the label
            assert variable["allValue"] == ".*"


def test_prometheus_understands_every_query(promtool: Promtool, tmp_path: Path) -> None:
    found = [{"record": f"q:{i}", "expr": query.expr} for i, query in enumerate(queries())]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": found}]}))
    assert f"{len(found)} rules found" in promtool("check", "rules", file)
