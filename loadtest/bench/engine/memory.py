"""Bar 7: what a serving process holds in memory, and whether that grows."""

import json
import subprocess
import sys
from typing import Any

from loadtest.bench.engine.bars import Bar, Measured, at_most
from loadtest.bench.errors import BenchFailed
from serve.bundle.loader import Bundle

_WHAT_SIZE = "resident memory after requests of 1 to 512 tokens"
_WHAT_GROWTH = "the same / after a tenth of the requests"
_WEIGHTS, _BASE_MB = 1.3, 300.0
_GROWTH = 1.03


def memory(bundle: Bundle, requests: int, num_threads: int) -> Measured:
    """Let a process of its own answer so many requests with the fp32 variant.

    Raises:
        BenchFailed: it did not.
    """
    module = "loadtest.bench.engine.memory_probe"
    command = [sys.executable, "-m", module, str(bundle.folder), "fp32"]
    command += [str(requests), str(num_threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchFailed(f"the process that measures memory failed:\n{done.stderr[-2000:]}")
    figures = json.loads(done.stdout)
    return bars_of(bundle.name, figures), figures | {"bundle": bundle.name}


def bars_of(name: str, figures: dict[str, Any]) -> list[Bar]:
    """Return the bars on what the process held."""
    (tenth, early_mb), *_, (requests, late_mb) = figures["resident_mb"][1:]
    bound_mb = _WEIGHTS * figures["weights_mb"] + _BASE_MB
    return [
        at_most(_WHAT_SIZE, f"{name}, after {requests:,}", late_mb, bound_mb, "MB"),
        at_most(_WHAT_GROWTH, f"{name}, {requests:,} and {tenth:,}", late_mb / early_mb, _GROWTH),
    ]
