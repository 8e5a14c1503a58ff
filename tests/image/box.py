"""An image built by Buildah. Bubblewrap runs it, so no container engine is needed."""

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.image.dockerfile import ROOT

BUILDAH = shlex.split(os.environ.get("OFFRAMP_BUILDAH", ""))
BUILD_ARGS = shlex.split(os.environ.get("OFFRAMP_BUILD_ARGS", ""))
# A user that the image does not know.
UID, GID = "12345", "54321"


class Box:
    """The project's image as a folder; what runs in it may write to /tmp and nothing else."""

    def __enter__(self) -> Self:
        """Build, and mount what was built."""
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self._folder.chmod(0o755)
            name = "localhost/offramp-under-test"
            options = ["--isolation", "chroot", "--format", "docker", *BUILD_ARGS]
            self._buildah("build", *options, "-t", name, str(ROOT))
            (self._described,) = json.loads(self._buildah("images", "--json", name))
            inspected = json.loads(self._buildah("inspect", "--type", "image", name))
            self.config: dict[str, Any] = inspected["Docker"]["config"]
            container = self._buildah("from", name)
            stack.callback(self._buildah, "rm", container)
            self.root = self._folder / "root"
            self.root.mkdir()
            self.bundles = self._folder / "bundles"
            self.bundles.mkdir()
            mounted = self._buildah("mount", container)
            subprocess.run(["mount", "--bind", mounted, self.root], check=True)
            stack.callback(subprocess.run, ["umount", self.root], check=True)
            self._resources = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._resources.close()

    @property
    def size_bytes(self) -> int:
        """The size of the unpacked image, its base included."""
        files = (path for path in self.root.rglob("*") if not path.is_symlink())
        return sum(path.stat().st_size for path in files if path.is_file())

    @property
    def default_command(self) -> list[str]:
        """The command that the image runs without arguments."""
        argv: list[str] = self.config["Entrypoint"] + self.config["Cmd"]
        return argv

    def run(self, argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        """Run a command in the image's environment, with its own network and process namespace."""
        environment = [
            part for pair in self.config["Env"] for part in ("--setenv", *pair.split("=", 1))
        ]
        jail = ["--ro-bind", self.root, "/", "--ro-bind", self.bundles, "/bundles"]
        jail += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--die-with-parent"]
        jail += ["--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
        jail += ["--clearenv", *environment, "--chdir", self.config["WorkingDir"]]
        as_user = ["setpriv", "--reuid", UID, "--regid", GID, "--clear-groups"]
        return subprocess.run(
            [*as_user, "bwrap", *jail, *argv], capture_output=True, text=True, check=False
        )

    def _buildah(self, *arguments: str) -> str:
        done = subprocess.run([*BUILDAH, *arguments], stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.strip()
