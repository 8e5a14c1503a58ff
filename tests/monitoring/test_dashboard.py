"""The dashboard is one that Grafana can show."""

import itertools
import re
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


def test_ids_and_titles_are_unique() -> None:
    ids = [panel["id"] for panel in all_panels()]
    assert len(ids) == len(set(ids))
    assert dashboard()["uid"] == "offramp"
    assert "id" not in dashboard(), "the database's own number, which an import must not bring"
    assert dashboard()["schemaVersion"] == SCHEMA_VERSION


def test_panels_neither_overlap_nor_leave_the_page() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in all_panels():
        cells = area(panel)
        assert cells
        assert max(x for x, _ in cells) < COLUMNS, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


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
    used = set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text()))
    assert (
        used - {"__rate_interval", "__all"} == defined == {"datasource", "job", "model", "replica"}
    )


def test_all_means_also_servers_without_the_label() -> None:
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            assert variable["allValue"] == ".*"


def test_nothing_in_it_could_be_taken_for_a_helm_or_chart_value() -> None:
    assert "{{ " not in DASHBOARD.read_text()


def test_prometheus_understands_every_query(promtool: Promtool, tmp_path: Path) -> None:
    found = [{"record": f"q:{i}", "expr": query.expr} for i, query in enumerate(queries())]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": found}]}))
    assert f"{len(found)} rules found" in promtool("check", "rules", file)
