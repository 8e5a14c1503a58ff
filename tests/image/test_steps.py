"""Steps of the Dockerfile, and its default command, run on this machine."""

import os
import shutil
import subprocess
import sysconfig
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.image.dockerfile import ROOT, command, default_of, lines, run_that_says
from tests.serve.support.live_server import FULL_DEPTH, LiveServer
from tests.serve.support.server_process import ServerProcess, run_offramp

pytestmark = pytest.mark.nightly

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

Prepared = Callable[[str], tuple[list[str], list[str], list[str]]]


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """Run the build's step before pip; return requirements, additional ones, and constraints."""

    def prepare(variant: str) -> tuple[list[str], list[str], list[str]]:
        for name in ("pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, tmp_path)
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", run_that_says("VARIANT is cpu or cuda")],
            cwd=tmp_path,
            check=True,
            env={
                "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
                "VARIANT": variant,
                "CUDA_LIBRARIES": default_of("CUDA_LIBRARIES"),
            },
        )
        names = ("requirements.txt", "more.txt", "constraints.txt")
        requirements, more, constraints = (lines(tmp_path / name) for name in names)
        return requirements, more, constraints

    return prepare


def test_cpu_variant_requires_the_small_onnxruntime_in_the_same_version(prepared: Prepared) -> None:
    requirements, more, constraints = prepared("cpu")
    (runtime,) = (Requirement(r) for r in requirements if r.startswith("onnxruntime"))
    assert (runtime.name, runtime.marker) == ("onnxruntime", None)
    assert more == []
    (pin,) = (c for c in constraints if c.startswith("onnxruntime"))
    assert pin.replace("onnxruntime==", "onnxruntime-gpu==") in lines(ROOT / "constraints.txt")
    assert len(requirements) == len(PROJECT["dependencies"]) - 1


def test_cuda_variant_requires_all_that_onnxruntime_needs_on_a_gpu(prepared: Prepared) -> None:
    requirements, more, constraints = prepared("cuda")
    assert requirements == PROJECT["dependencies"]
    assert more[0] == "onnxruntime-gpu[cuda,cudnn]"
    assert constraints == lines(ROOT / "constraints.txt")
    pins = {canonicalize_name(name): version for name, version in (m.split("==") for m in more[1:])}
    try:
        needed = [Requirement(line) for line in requires("onnxruntime-gpu") or ()]
    except PackageNotFoundError:
        pytest.skip("onnxruntime-gpu is not installed here: it exists for Linux on x86-64 only")
    extras = ({"extra": "cuda"}, {"extra": "cudnn"})
    for need in needed:
        if need.marker and any(need.marker.evaluate(extra) for extra in extras):
            assert pins[canonicalize_name(need.name)] in need.specifier


def test_variant_that_does_not_exist_is_refused(prepared: Prepared) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        prepared("rocm")


@pytest.fixture
def keyed(
    bundle_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[LiveServer, str]]:
    """Run the default command in the environment of compose.yaml; return a client and a key."""
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["offramp"]
    assert "command" not in service
    assert service["volumes"][-2:] == ["${KEYS:-./keys}:/keys:ro", "state:/state"]
    file = tmp_path / "keys.json"
    status, key, _ = run_offramp("keys", "new", "app", "--file", file)
    assert status == 0
    for name, value in service["environment"].items():
        inside = value.replace("/keys/", f"{tmp_path}/").replace("/state", f"{tmp_path}/state")
        monkeypatch.setenv(name, inside)
    words = words_of_the_default_command(bundle_folder.parent, tmp_path)
    with ServerProcess(*(word if word != "8000" else "0" for word in words[1:])) as process:
        yield process.client(), key.strip()


def test_compose_serves_with_keys_and_refuses_a_request_without_one(
    keyed: tuple[LiveServer, str], tmp_path: Path
) -> None:
    server, key = keyed
    assert server.refusal("w1", model="tiny").status == 401
    assert server.http.get("/metrics").status_code == 200
    assert server.http.get("/health/ready").status_code == 200
    assert server.http.put("/v1/models/tiny/policy", json=FULL_DEPTH).status_code == 401
    server.http.headers["Authorization"] = f"Bearer {key}"
    assert server.answer("w1", model="tiny")["model"] == "tiny"
    assert (tmp_path / "state" / "lock").exists(), "policies are kept"


def test_default_command_serves_each_folder_with_a_manifest(tmp_path: Path) -> None:
    for name in ("one", "two words"):
        (tmp_path / "bundles" / name).mkdir(parents=True)
        (tmp_path / "bundles" / name / "manifest.json").touch()
    (tmp_path / "bundles" / "lost+found").mkdir()
    folders = [f"{tmp_path}/bundles/one", f"{tmp_path}/bundles/two words"]
    assert words_of_the_default_command(tmp_path / "bundles", tmp_path)[-2:] == folders


def test_default_command_without_keys_does_not_start(
    bundle_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OFFRAMP_KEYS", raising=False)
    words = words_of_the_default_command(bundle_folder.parent, tmp_path)
    status, _, said = run_offramp(*words)
    assert status == 2
    assert "give --keys FILE (`offramp keys new` makes one), or --no-auth" in said
    assert "OFFRAMP_KEYS" in run_offramp("serve", "--help")[1]


def words_of_the_default_command(bundles: Path, scratch: Path) -> list[str]:
    """Return the arguments that `offramp` gets, `serve` first."""
    told = scratch / "offramp"
    told.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    told.chmod(0o755)
    *shell, script = command()
    done = subprocess.run(
        [*shell, script.replace("/bundles", str(bundles))],
        env={"PATH": f"{scratch}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()
