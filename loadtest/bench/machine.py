"""The machine and the libraries that a figure depends on."""

import os
import platform
from importlib.metadata import version
from typing import Any

import onnxruntime

from serve.runtime.hardware import CPUINFO, available_threads, has_vnni
from serve.version import __version__


def machine_facts(num_threads: int) -> dict[str, Any]:
    """Return the machine as JSON data; call this before the benchmark loads the machine."""
    return {
        "cpu": _cpu_model(),
        "cores": available_threads(),
        "vnni": has_vnni(),
        "system": platform.system(),
        "threads": num_threads,
        "load_average_at_start": list(os.getloadavg()),
        "python": platform.python_version(),
        "onnxruntime": onnxruntime.__version__,
        "numpy": version("numpy"),
        "offramp": __version__,
    }


def _cpu_model() -> str:
    lines = CPUINFO.read_text().splitlines() if CPUINFO.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
