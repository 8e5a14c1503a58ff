"""Measurements in a process of their own: PyTorch's libraries for CUDA may not suit those here.

Such a process writes JSON objects to stdout, one a line. If it crashes or takes too long, what it
has written so far is kept.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
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
    why = ""
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
        written = done.stdout
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            why = f"it ended with status {done.returncode}: {said}"
    except subprocess.TimeoutExpired as expired:
        written, why = expired.stdout or b"", "no time left"
    yield from (json.loads(line) for line in written.splitlines() if line.startswith(b"{"))
    if why:
        raise BenchFailed(f"{module}: {why}")
