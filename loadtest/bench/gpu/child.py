"""Measurements in a process of their own: PyTorch's libraries for CUDA may not suit those here.

Such a process writes JSON objects to stdout, one a line. If it crashes or takes too long, what it
has written so far is kept.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from tempfile import TemporaryFile
from typing import Any

from loadtest.bench.errors import BenchFailed


def absent(*packages: str) -> str:
    """Return the packages that are not installed, separated by commas."""
    return ", ".join(name for name in packages if not _is_there(name))


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def run_child(module: str, arguments: Sequence[str], seconds: float) -> Iterator[dict[str, Any]]:
    """Run a module and yield the objects that it writes.

    Args:
        module: of this package.
        arguments: of its command line.
        seconds: after so long it is killed.

    Raises:
        BenchFailed: it was killed, or it ended with another status than 0.
    """
    command = [sys.executable, "-m", module, *arguments]
    with (
        TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        killer = threading.Timer(seconds, process.kill)
        killer.start()
        try:
            yield from (json.loads(line) for line in process.stdout or () if line.startswith("{"))
            status = process.wait()
        finally:
            expired = not killer.is_alive()
            killer.cancel()
            process.kill()
        if status:
            errors.seek(0)
            said = errors.read().strip().splitlines()[-1:]
            why = "no time left" if expired else f"it ended with status {status}: {said}"
            raise BenchFailed(f"{module}: {why}")
