"""The image, built and run. Takes minutes; needs root, Buildah, bubblewrap and a base image."""

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
# Starts the command `$@`, sends it a request, ends it, and prints the answer and its exit status.
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


def test_programs_that_kuberay_calls_are_there(box: Box) -> None:
    for program in ("bash", "wget", "grep", "ray", "offramp"):
        assert box.run(["bash", "-c", f"command -v {program}"]).returncode == 0, program
    assert "deploy" in box.run(["serve", "--help"]).stdout, "Ray's command, not our package"
    imported = box.run(["python", "-c", "import serve; print(serve.__file__)"]).stdout
    assert imported.startswith("/opt/offramp/")
    assert imported.strip().endswith("/site-packages/serve/__init__.py")


def test_only_tmp_can_be_written_by_an_unknown_user(box: Box) -> None:
    said = box.run(["bash", "-c", "id -u; id -g; touch /tmp/a /opt/offramp/a /bundles/a /a"])
    assert said.stdout.split() == [UID, GID]
    assert said.stderr.count("Read-only file system") == 3


def test_default_command_and_ray_serve_answer_and_end_well(box: Box) -> None:
    ray = ["offramp", "serve", "/bundles/tiny", "--host", "0.0.0.0", "--replicas", "2"]
    for command in (box.default_command, ["tini", "-s", "--", *ray]):
        said = box.run(["env", "OFFRAMP_NO_AUTH=1", "bash", "-c", SESSION, "session", *command])
        assert said.returncode == 0, said.stderr
        answer, status = said.stdout.rsplit(maxsplit=1)
        assert json.loads(answer)["model"] == "tiny"
        assert json.loads(answer)["policy_version"] == 1
        assert status == "0"


def test_image_does_not_start_without_keys(box: Box) -> None:
    said = box.run(box.default_command)
    assert said.returncode == 2
    assert "give --keys FILE" in said.stderr


def test_health_check_and_labels_survive_the_build(box: Box) -> None:
    assert box.config["Healthcheck"]["Test"][0] == "CMD"
    assert box.config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert box.config["User"] == "10001:0"
    assert (box.root / "bundles").is_dir()
    assert not (box.root / ROOT.relative_to("/")).exists()
