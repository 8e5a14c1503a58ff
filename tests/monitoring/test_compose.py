"""compose.yaml: what it mounts is there, and what it starts cannot do much."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve.http.settings import DRAIN_S
from tests.monitoring.conftest import Promtool
from tests.monitoring.promql import ALERTS, DASHBOARD, ROOT

COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
FOLDER = ROOT / "docs" / "compose"


def mounts(service: str) -> dict[str, str]:
    """Return what is mounted from the project, by its place in the container."""
    found = (volume.removesuffix(":ro").rsplit(":", 1) for volume in SERVICES[service]["volumes"])
    return {target: source for source, target in found if source.startswith("./")}


@pytest.mark.parametrize("name", SERVICES)
def test_service_is_confined_and_listens_on_this_machine_only(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert int(service["user"].partition(":")[0]) > 0
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert re.search(r":v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}$|^offramp:cpu$", service["image"])


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_everything_mounted_from_the_project_is_there_and_read_only(name: str) -> None:
    assert mounts(name)
    assert all((ROOT / source).is_file() for source in mounts(name).values())
    own = [v for v in SERVICES[name]["volumes"] if not v.startswith("./")]
    assert [v.partition(":")[0] for v in own] == [name]
    assert all(v.endswith(":ro") for v in SERVICES[name]["volumes"] if v not in own)
    assert set(COMPOSE["volumes"]) == {"prometheus", "grafana", "state"}


def test_keys_are_a_folder_that_is_mounted_read_only_and_not_committed() -> None:
    # A file that is mounted by itself does not change when `offramp keys` writes a new one.
    assert SERVICES["offramp"]["environment"]["OFFRAMP_KEYS"] == "/keys/keys.json"
    assert "${KEYS:-./keys}:/keys:ro" in SERVICES["offramp"]["volumes"]
    assert "/keys/" in (ROOT / ".gitignore").read_text().splitlines()


def test_server_is_given_the_time_that_it_takes_to_stop() -> None:
    assert int(SERVICES["offramp"]["stop_grace_period"].removesuffix("s")) > DRAIN_S


def test_prometheus_can_read_its_configuration_and_scrapes_the_server(
    promtool: Promtool, tmp_path: Path
) -> None:
    for target, source in mounts("prometheus").items():
        (tmp_path / Path(target).name).write_bytes((ROOT / source).read_bytes())
    assert "SUCCESS" in promtool("check", "config", tmp_path / "prometheus.yml")
    (job,) = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["offramp:8000"]}]
    assert ROOT / mounts("prometheus")["/etc/prometheus/alerts.yaml"] == ALERTS


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    (source,) = yaml.safe_load((FOLDER / "datasource.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["isDefault"]
    (provider,) = yaml.safe_load((FOLDER / "dashboards.yml").read_text())["providers"]
    shown = f"{provider['options']['path']}/offramp.json"
    assert ROOT / mounts("grafana")[shown] == DASHBOARD
    home = "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"
    assert SERVICES["grafana"]["environment"][home] == shown


def test_gpu_variant_changes_only_what_a_gpu_needs() -> None:
    gpu = yaml.safe_load((FOLDER / "gpu.yaml").read_text())
    assert set(gpu) == {"services"}
    assert set(gpu["services"]) == {"offramp"}
    assert set(gpu["services"]["offramp"]) == {"image", "build", "deploy"}
    assert gpu["services"]["offramp"]["build"]["args"] == {"VARIANT": "cuda"}
