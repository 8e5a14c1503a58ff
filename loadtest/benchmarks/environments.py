"""The peers' environments, each from its pinned requirements, and the model that they serve."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from loadtest.bench.one_graph import write_one_graph
from loadtest.benchmarks.contenders import PEERS, Contender, python_of
from loadtest.http.server_process import ChildProcess
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.errors import OfframpError

_INSTALL_S = 900.0


class NotInstalled(OfframpError):
    """A peer's environment could not be made; the message has the installer's last lines."""


def install(peer: Contender, folder: Path, python: str, report: Callable[[str], None]) -> None:
    """Make a peer's environment and what it prepares, unless both are there.

    Raises:
        NotInstalled: its packages cannot be installed, or its preparation failed.
    """
    requirements = PEERS / f"{peer.environment}.txt"
    prepare = PEERS / f"{peer.environment}_prepare.py"
    target = folder / peer.environment
    done, prepared = target / "installed.txt", target / "prepared"
    wanted = f"{python}\n{requirements.read_text()}"
    if not done.exists() or done.read_text() != wanted:
        report(f"installing {peer.environment}")
        shutil.rmtree(target, ignore_errors=True)
        _run(python, "-m", "venv", str(target))
        pip = (str(python_of(folder, peer.environment)), "-m", "pip", "install", "--quiet")
        _run(*pip, "--no-compile", "--disable-pip-version-check", "-r", str(requirements))
        done.write_text(wanted)
    if prepare.exists() and not prepared.exists():
        report(f"preparing {peer.name}'s model")
        prepared.mkdir()
        try:
            _run(*peer.command[:-1], str(prepare))
        except NotInstalled:
            shutil.rmtree(prepared)
            raise


def _run(*command: str) -> None:
    with ChildProcess(command) as process:
        if process.status(_INSTALL_S) != 0:
            raise NotInstalled(f"{command[-1]} failed:\n{process.last_lines()}")


def write_whole_model(bundle: Bundle, folder: Path, precision: Precision = "int8") -> Path:
    """Write the bundle as one graph, as `peers/whole_model.py` reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_one_graph(bundle, precision, folder)
    shutil.copy(bundle.tokenizer_path, folder / "tokenizer.json")
    manifest = bundle.manifest
    facts = {name: getattr(manifest, name) for name in ("labels", "pad_id", "max_tokens")}
    (folder / "model.json").write_text(json.dumps(facts))
    return folder
