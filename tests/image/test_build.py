"""The image itself, built and run. Minutes; needs root, Buildah, bubblewrap and a base image."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.box import BUILDAH, GID, UID, Box
from tests.image.dockerfile import ROOT

pytestmark = pytest.mark.skipif(
    not BUILDAH,
    reason="builds an image, as root: OFFRAMP_BUILDAH=buildah make test ARGS=tests/image, with "
    "OFFRAMP_BUILD_ARGS for more arguments; see docs/deployment.md",
)

LARGEST_BYTES = 1_200_000_000
# Starts what it is given, asks it, ends it, and reports as JSON; `$@` is the command.
SESSION = """
"$@" > /tmp/log 2>&1 &
server=$!
until wget -q -O /dev/null http://127.0.0.1:8000/health/ready; do
  kill -0 $server || { cat /tmp/log >&2; exit 1; }
  sleep 0.2
done
wget -q -O - --header 'Content-Type: application/json' --post-data '{"inputs": "w1"}' \
  http://127.0.0.1:8000/v1/classify
kill -TERM $server
wait $server
echo " $?"
"""


@pytest.fixture(scope="module")
def box(bundle_folder: Path) -> Iterator[Box]:
    with Box() as box:
        shutil.copytree(bundle_folder, box.bundles / "tiny")
        yield box


def test_image_is_small_enough(box: Box) -> None:
    assert box.size_bytes < LARGEST_BYTES


def test_image_has_no_compiler_no_torch_and_no_pip_of_its_own(box: Box) -> None:
    for program in ("cc", "gcc", "g++", "make", "ld"):
        assert box.run(["bash", "-c", f"command -v {program}"]).stdout == ""
    for module in ("torch", "transformers", "pip", "hypothesis"):
        assert "ModuleNotFoundError" in box.run(["python", "-c", f"import {module}"]).stderr


def test_what_kuberay_calls_is_there(box: Box) -> None:
    for program in ("bash", "wget", "grep", "ray", "offramp"):
        assert box.run(["bash", "-c", f"command -v {program}"]).returncode == 0, program
    assert "deploy" in box.run(["serve", "--help"]).stdout, "Ray's command, not our package"
    imported = box.run(["python", "-c", "import serve; print(serve.__file__)"]).stdout
    assert imported.startswith("/opt/offramp/")
    assert imported.strip().endswith("/site-packages/serve/__init__.py")


def test_nothing_but_tmp_can_be_written_and_the_user_is_nobody(box: Box) -> None:
    said = box.run(["bash", "-c", "id -u; id -g; touch /tmp/a /opt/offramp/a /bundles/a /a"])
    assert said.stdout.split() == [UID, GID]
    assert said.stderr.count("Read-only file system") == 3


def test_default_command_serves_and_ends_well(box: Box) -> None:
    said = box.run(["bash", "-c", SESSION, "session", *box.default_command])
    assert said.returncode == 0, said.stderr
    answer, status = said.stdout.rsplit(maxsplit=1)
    assert json.loads(answer)["model"] == "tiny"
    assert status == "0"


def test_ray_serve_runs_in_it(box: Box) -> None:
    command = ["offramp", "serve", "/bundles/tiny", "--host", "0.0.0.0", "--replicas", "2"]
    said = box.run(["bash", "-c", SESSION, "session", "tini", "-s", "--", *command])
    assert said.returncode == 0, said.stderr
    answer, status = said.stdout.rsplit(maxsplit=1)
    assert json.loads(answer)["policy_version"] == 1
    assert status == "0"


def test_health_check_and_labels_survive_the_build(box: Box) -> None:
    assert box.config["Healthcheck"]["Test"][0] == "CMD"
    assert box.config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert box.config["User"] == "10001:0"
    assert (box.root / "bundles").is_dir()
    assert not (box.root / ROOT.relative_to("/")).exists()
