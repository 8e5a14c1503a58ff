"""The peers' environments, each from its pinned requirements, and the model that they serve."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from loadtest.bench.one_graph import write_one_graph
from loadtest.benchmarks.contenders import PEERS, python_of
from loadtest.http.server_process import ChildProcess
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.errors import OfframpError

_INSTALL_S = 900.0


class NotInstalled(OfframpError):
    """A peer's environment could not be made; the message has the installer's last lines."""


def install(name: str, folder: Path, python: str, report: Callable[[str], None]) -> None:
    """Make a peer's environment, unless it is there for these requirements.

    Raises:
        NotInstalled: its packages cannot be installed.
    """
    requirements = PEERS / f"{name}.txt"
    target, done = folder / name, folder / name / "installed.txt"
    wanted = f"{python}\n{requirements.read_text()}"
    if done.exists() and done.read_text() == wanted:
        return
    report(f"installing {name}")
    shutil.rmtree(target, ignore_errors=True)
    _run(python, "-m", "venv", str(target))
    pip = (str(python_of(folder, name)), "-m", "pip", "install", "--quiet", "--no-compile")
    _run(*pip, "--disable-pip-version-check", "-r", str(requirements))
    done.write_text(wanted)


def _run(*command: str) -> None:
    with ChildProcess(command) as process:
        if process.status(_INSTALL_S) != 0:
            raise NotInstalled(f"{' '.join(command)} failed:\n{process.last_lines()}")


def write_whole_model(bundle: Bundle, folder: Path, precision: Precision = "int8") -> Path:
    """Write the bundle as one graph, as `peers/whole_model.py` reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_one_graph(bundle, precision, folder)
    shutil.copy(bundle.tokenizer_path, folder / "tokenizer.json")
    manifest = bundle.manifest
    facts = {name: getattr(manifest, name) for name in ("labels", "pad_id", "max_tokens")}
    (folder / "model.json").write_text(json.dumps(facts))
    return folder
