"""Runs of ONNX Runtime sessions whose inputs and outputs stay on the device."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import onnxruntime as ort

OpenSession: TypeAlias = Callable[[Path], ort.InferenceSession]


def _queued() -> ort.RunOptions:
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options


# ONNX Runtime returns once everything is queued on the stream.
QUEUED = _queued()


def run_queued(session: ort.InferenceSession, binding: ort.IOBinding) -> list[ort.OrtValue]:
    """Queue a run and return its outputs, which may not be computed yet.

    The binding is not used again, because the outputs are views into it.
    """
    session.run_with_iobinding(binding, QUEUED)
    # Otherwise hidden states would keep those of all segments before them alive.
    binding.clear_binding_inputs()
    values: list[ort.OrtValue] = binding.get_outputs()
    return values
