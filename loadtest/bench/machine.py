"""The machine and the libraries that a figure depends on."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import version
from typing import Any

import onnxruntime

from serve.runtime.hardware import available_threads, cpu_model, has_vnni
from serve.version import __version__


def machine_facts(num_threads: int) -> dict[str, Any]:
    """Return the machine as JSON data; call this before the benchmark loads the machine."""
    return {
        "cpu": cpu_model(),
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


def gpu_name() -> str | None:
    """Return name and driver of the first visible GPU as nvidia-smi says them, or None."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    asked = [command, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30).stdout
    return said.splitlines()[0] if said else None
