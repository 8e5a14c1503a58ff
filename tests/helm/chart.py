"""Helm, and the rendered chart."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import yaml

Object = dict[str, Any]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "offramp"
BASE = Path(__file__).with_name("values.yaml")
# A folder whose `build.sh OUTPUT` builds a `helm`, used where none is installed.
BUILDER = ROOT.parent / "shared" / "tools" / "helm"
BUILT = ROOT / "build" / "helm" / "helm"
RELEASE, NAMESPACE = "prod", "models"
# Ten times as fast, where PyYAML was built with it.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class NoHelm(Exception):
    """Helm is not available, for the reason given."""


class Refused(Exception):
    """Helm refused to render; the message is Helm's."""


@cache
def helm() -> str:
    """Return the path of `helm`: on PATH, by OFFRAMP_HELM, or built once.

    Raises:
        NoHelm: no `helm` was found or built.
    """
    found = os.environ.get("OFFRAMP_HELM") or shutil.which("helm")
    if found:
        return found
    script = BUILDER / "build.sh"
    if not script.is_file():
        raise NoHelm("no helm on PATH, nor named by OFFRAMP_HELM")
    BUILT.parent.mkdir(parents=True, exist_ok=True)
    # Only one of several test processes builds: the installer cannot run twice at once.
    with BUILT.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not BUILT.is_file():
            made = subprocess.run([script, BUILT], capture_output=True, text=True, check=False)
            if made.returncode:
                raise NoHelm(f"no helm on PATH, and {script} failed: {made.stderr[-400:]}")
    return str(BUILT)


def run_helm(*arguments: str | Path) -> str:
    """Return Helm's output.

    Raises:
        Refused: Helm ended with an error.
    """
    command = [helm(), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stdout + done.stderr)
    return done.stdout


class Rendered:
    """The objects of a release."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.objects: list[Object] = [o for o in yaml.load_all(text, LOADER) if o]

    def __iter__(self) -> Iterator[Object]:
        return iter(self.objects)

    def kinds(self) -> list[str]:
        """Return the kinds of all objects, sorted."""
        return sorted(o["kind"] for o in self)

    def every(self, kind: str) -> list[Object]:
        """Return the objects of a kind."""
        return [o for o in self if o["kind"] == kind]

    def the(self, kind: str) -> Object:
        """Return the only object of a kind."""
        [found] = self.every(kind)
        return found

    @property
    def serve_config(self) -> Object:
        """The config that KubeRay gives to Ray Serve."""
        config: Object = yaml.safe_load(self.the("RayService")["spec"]["serveConfigV2"])
        return config

    @property
    def cluster(self) -> Object:
        """The RayCluster's spec."""
        spec: Object = self.the("RayService")["spec"]["rayClusterConfig"]
        return spec

    @property
    def keys(self) -> dict[str, str]:
        """The content of the Secret with the API keys."""
        data = self.the("Secret")["data"]
        return {name: base64.b64decode(value).decode() for name, value in data.items()}

    def pods(self) -> dict[str, Object]:
        """Return every pod template by the name of its first container, `helm test` included."""
        templates = [o["spec"]["template"] for o in self.every("Deployment")]
        templates += [{"metadata": o["metadata"], "spec": o["spec"]} for o in self.every("Pod")]
        for service in self.every("RayService"):
            cluster = service["spec"]["rayClusterConfig"]
            templates.append(cluster["headGroupSpec"]["template"])
            templates += [group["template"] for group in cluster["workerGroupSpecs"]]
        return {t["spec"]["containers"][0]["name"]: t for t in templates}


def render(values: Mapping[str, Any] | None = None, sets: Sequence[str] = ()) -> Rendered:
    """Render the chart as `helm template` does.

    Args:
        values: a values file's content, on top of values.yaml beside this file.
        sets: arguments of `--set`.

    Raises:
        Refused: the values are wrong.
    """
    return Rendered(_text(json.dumps(values or {}), tuple(sets)))


@cache
def _text(values: str, sets: tuple[str, ...]) -> str:
    with NamedTemporaryFile(mode="w", suffix=".yaml") as file:
        file.write(values)  # JSON is YAML
        file.flush()
        flags = [part for one in sets for part in ("--set", one)]
        files = ("-f", BASE, "-f", file.name)
        return run_helm("template", RELEASE, CHART, "-n", NAMESPACE, *files, *flags)
