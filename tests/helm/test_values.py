"""values.yaml, its schema, its table in the README, and the server's own configuration."""

import json
import re
import tomllib
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from typing import Any

import yaml

from serve.config import ServerConfig, ServerLimits, UserConfig
from serve.engine.scheduler import BatchLimits
from serve.http.settings import DRAIN_S, ConnectionLimits
from serve.policy.document import Audit, Guard, Policy
from serve.policy.limits import Limits
from serve.policy.profile import Settings
from serve.version import __version__
from tests.helm.chart import CHART, ROOT, render
from tests.helm.matrix import CASES, POLICIES, Values

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
ROW = re.compile(r"^\| `([^`]+)` \| `(.*?)` \| (.+) \|$", re.MULTILINE)
README: dict[str, tuple[str, str]] = {
    path: (default, text) for path, default, text in ROW.findall((CHART / "README.md").read_text())
}
# Maps of values, and not values that are maps.
GROUPS = "properties"


def leaves(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the values that a schema describes, by path."""
    for name, part in schema[GROUPS].items():
        below = f"{path}.{name}" if path else name
        if GROUPS in part and "description" not in part:
            yield from leaves(part, below)
        else:
            yield below, part


DESCRIBED = {path: part for path, part in leaves(SCHEMA) if path != "global"}


def default_of(path: str) -> Any:
    return reduce(getitem, path.split("."), VALUES)


def paths_of(values: Values, path: str = "") -> Iterator[str]:
    """Yield every value's path, as deep as the schema knows groups."""
    for name, value in values.items():
        below = f"{path}.{name}" if path else name
        if below in DESCRIBED or not isinstance(value, dict):
            yield below
        else:
            yield from paths_of(value, below)


def test_values_schema_and_readme_describe_the_same_values() -> None:
    assert sorted(paths_of(VALUES)) == sorted(DESCRIBED) == sorted(README)
    for path, (default, text) in README.items():
        assert json.loads(default) == default_of(path), path
        assert DESCRIBED[path]["description"].lower() == f"{text}.".lower(), path


def test_policies_may_have_all_that_the_server_takes() -> None:
    policy = SCHEMA[GROUPS]["policies"]["additionalProperties"][GROUPS]
    assert set(policy) == set(Policy.model_fields)
    assert set(policy["limits"][GROUPS]) == set(Limits.model_fields)
    assert set(policy["audit"][GROUPS]) == set(Audit.model_fields)
    assert set(policy["guard"][GROUPS]) == set(Guard.model_fields)
    assert set(SCHEMA["definitions"]["profile"]["else"][GROUPS]) == set(Settings.model_fields)


def test_no_group_admits_what_it_does_not_describe() -> None:
    def check(schema: dict[str, Any]) -> None:
        assert schema["additionalProperties"] is False
        for part in schema[GROUPS].values():
            if GROUPS in part and "description" not in part:
                check(part)

    check(SCHEMA)


def test_chart_names_the_servers_version_and_rays() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    )
    assert VALUES["ray"]["version"] == pins["ray"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == chart["name"]


def test_server_takes_every_config_that_the_chart_makes() -> None:
    made = set()
    for values in CASES.values():
        if values.get("mode") == "deployment":
            continue
        for application in render(values).serve_config["applications"]:
            ServerConfig.model_validate(application["args"])
            made |= set(application["args"])
            for deployment in application["deployments"]:
                UserConfig.model_validate(deployment["user_config"])
    # TLS ends at the Ingress, and Ray Serve's proxies have no gRPC of ours.
    elsewhere = {"tls_cert", "tls_key", "tls_client_ca", "grpc_port"}
    # A release has its bundles and its workers to itself: `build` finds both.
    elsewhere |= {"bundle_sha256", "node_resource"}
    elsewhere |= {"state"}  # a cluster keeps policies in Ray's store
    assert made == set(ServerConfig.model_fields) - elsewhere


def test_bounds_are_the_servers_in_both_modes() -> None:
    bounds = CASES["rayservice: bounds"]
    [application] = render(bounds).serve_config["applications"]
    config = ServerConfig.model_validate(application["args"])
    assert config.connections == ConnectionLimits(5.0, 75.5, 30.0, 2000, 12345678, 1024)
    assert config.batch_limits("cuda") == BatchLimits(32, 1234, in_flight=2)
    named = SCHEMA[GROUPS]["server"][GROUPS]["connections"][GROUPS]
    assert set(bounds["server"]["connections"]) == set(named)
    [server, *_] = render({**bounds, "mode": "deployment"}).pods()["server"]["spec"]["containers"]
    words = server["args"]
    limits = ServerLimits.model_validate_json(words[words.index("--limits") + 1])
    assert limits.model_fields_set == set(ServerLimits.model_fields)
    assert limits.model_dump().items() <= config.model_dump().items()


def test_numbers_of_any_origin_reach_the_server_as_numbers() -> None:
    # Helm makes strings of fractions on the command line, and floats of numbers in files.
    policy = "policies.sst2-minilm"
    # Without `default`, a string, into which `--set` cannot reach.
    named = {model: {**its} for model, its in POLICIES.items()}
    del named["sst2-minilm"]["default"]
    release = render(
        {"policies": named, "server": {"maxBodyBytes": 12345678}},
        [
            f"{policy}.default.rule=entropy",
            f"{policy}.default.threshold=0.05",
            f"{policy}.profiles.tiny.rule=entropy",
            f"{policy}.profiles.tiny.threshold=1e-3",
            f"{policy}.profiles.2024.rule=patience",
            f"{policy}.profiles.2024.patience=2",
            f"{policy}.profiles.each.rule=entropy",
            f"{policy}.profiles.each.threshold={{0.1,0.2,0}}",
            f"{policy}.profiles.sure.target.max_ms=2.5",
            f"{policy}.profiles.some.rule=classes",
            f"{policy}.profiles.some.thresholds.positive=0.9",
        ],
    )
    [application] = release.serve_config["applications"]
    assert application["args"]["max_body_bytes"] == 12345678
    user_config = application["deployments"][0]["user_config"]
    policies = UserConfig.model_validate(user_config).policies["sst2-minilm"]
    assert policies.model_dump(exclude_none=True) == {
        "default": {"rule": "entropy", "threshold": 0.05},
        "profiles": {
            **POLICIES["sst2-minilm"]["profiles"],
            "sure": {"target": {"max_disagreement": 0.01, "max_ms": 2.5, "certified": True}},
            "tiny": {"rule": "entropy", "threshold": 0.001},
            "2024": {"rule": "patience", "patience": 2},
            "each": {"rule": "entropy", "threshold": (0.1, 0.2, 0)},
            "some": {"rule": "classes", "thresholds": {"positive": 0.9}},
        },
        "limits": {"overrides": "profiles", "min_layer": 1},
    }
    deployed = render({"mode": "deployment", "policies": POLICIES}, [f"{policy}.default=fast"])
    [held] = [o for o in deployed.every("ConfigMap") if o["metadata"]["name"].endswith("policies")]
    assert json.loads(held["data"]["sst2-minilm.json"])["default"] == "fast"


def test_time_to_stop_is_what_the_server_takes() -> None:
    # uvicorn waits for requests in flight, then the engines for theirs.
    assert (
        f"gracefulShutdownSeconds {2 * DRAIN_S} "
        in (CHART / "templates" / "_validate.tpl").read_text()
    )
    shutdown = VALUES["shutdown"]
    needed = shutdown["preStopSeconds"] + 2 * DRAIN_S
    assert shutdown["terminationGracePeriodSeconds"] > needed
