"""The Secret with API keys, and which pod sees what of it."""

import json
import shutil
from pathlib import Path

import pytest

from serve.access.keys import PREFIX, hash_of, read_keys
from tests.helm.chart import BASE, CHART, Object, Rendered, render, run_helm
from tests.helm.matrix import POLICIES, Values, every_case

DEPLOYMENT: Values = {"mode": "deployment", "policies": POLICIES}


def test_secret_holds_two_keys_and_the_file_of_their_hashes(tmp_path: Path) -> None:
    keys = render().keys
    assert set(keys) == {"keys.json", "admin-key", "classify-key"}
    file = tmp_path / "keys.json"
    file.write_text(keys["keys.json"])
    admin, classify = read_keys(file)
    assert (admin.name, admin.scopes, admin.priority) == ("admin", ("admin",), "high")
    assert (classify.name, classify.scopes, classify.priority) == (
        "classify",
        ("classify",),
        "normal",
    )
    for key in (admin, classify):
        plain = keys[f"{key.name}-key"]
        assert plain.startswith(PREFIX)
        assert len(plain) == len(PREFIX) + 43
        assert key.sha256 == hash_of(plain)
        assert plain not in file.read_text()


def test_every_installation_has_keys_of_its_own() -> None:
    ours, others = render().keys, render({"replicas": 3}).keys
    assert not set(ours.values()) & set(others.values())


def test_upgrade_keeps_what_is_in_the_cluster(tmp_path: Path) -> None:
    # Helm looks up nothing when it only renders, so the look-up's result stands here in its place.
    chart = tmp_path / "offramp"
    shutil.copytree(CHART, chart)
    template = chart / "templates" / "secret.yaml"
    asked, found = (
        'lookup "v1" "Secret" .Release.Namespace $name',
        {"keys.json": "e30=", "x": "eA=="},
    )
    assert asked in template.read_text()
    result = f"fromJson {json.dumps(json.dumps({'data': found}))}"
    template.write_text(template.read_text().replace(asked, result))
    assert Rendered(run_helm("template", "prod", chart, "-f", BASE)).the("Secret")["data"] == found


def seen(pod: Object) -> dict[str, set[str]]:
    """Return the keys of the Secret that each container sees, as file or as variable."""
    secrets = {v["name"]: v["secret"] for v in pod["spec"].get("volumes", ()) if "secret" in v}
    found: dict[str, set[str]] = {}
    for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
        mounts = [
            secrets[m["name"]] for m in container.get("volumeMounts", ()) if m["name"] in secrets
        ]
        named = {item["key"] for secret in mounts for item in secret["items"]}
        for variable in container.get("env", ()):
            reference = variable.get("valueFrom", {}).get("secretKeyRef", {})
            if reference.get("key", "").endswith("-key"):
                named.add(reference["key"])
        if named:
            found[container["name"]] = named
    return found


@every_case
def test_servers_see_hashes_and_each_helper_its_key_alone(values: Values) -> None:
    enabled = values.get("auth", {}).get("enabled", True)
    server = "server" if values.get("mode") == "deployment" else "ray-worker"
    wanted = {server: {"keys.json"}, "classify": {"classify-key"}}
    if server == "server" and "policies" in values:
        wanted["policy-sync"] = {"admin-key"}
    found: dict[str, set[str]] = {}
    for pod in render(values).pods().values():
        found |= seen(pod)
    assert found == (wanted if enabled else {})


def test_files_of_keys_are_mounted_as_folders_that_every_user_of_the_container_may_read() -> None:
    # A file mounted by itself would not change when the Secret does. Hashes are no secret in a pod.
    for pod in render(DEPLOYMENT).pods().values():
        for volume in pod["spec"].get("volumes", ()):
            assert "defaultMode" not in volume.get("secret", {})  # 0644
        for container in pod["spec"]["containers"]:
            for mount in container.get("volumeMounts", ()):
                if "key" in mount["name"]:
                    assert mount["readOnly"] is True
                    assert "subPath" not in mount


@pytest.mark.parametrize("mode", ["rayservice", "deployment"])
def test_secret_of_your_own_takes_the_place_of_the_charts(mode: str) -> None:
    release = render({"mode": mode, "policies": POLICIES, "auth": {"existingSecret": "mine"}})
    assert not release.every("Secret")
    for pod in release.pods().values():
        for volume in pod["spec"].get("volumes", ()):
            assert volume.get("secret", {}).get("secretName", "mine") == "mine"
