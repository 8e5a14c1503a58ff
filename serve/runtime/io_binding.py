"""Runs of ONNX Runtime sessions whose inputs and outputs stay on the device."""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

Inputs: TypeAlias = Mapping[str, ort.OrtValue]


def on_device(array: NDArray[np.int64], device: str) -> ort.OrtValue:
    """Return a copy of an array on a device."""
    return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), device)


def bound_run(
    session: ort.InferenceSession,
    inputs: Inputs,
    outputs: Mapping[str, str],
    options: ort.RunOptions | None,
) -> list[ort.OrtValue]:
    """Run and return the outputs in order; outputs that are not named are not read.

    The binding is not used again, because the outputs are views into it.

    Args:
        session: to be run.
        inputs: by name, on the session's device.
        outputs: the device on which each is left, by name.
        options: None to wait for the result.
    """
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    for name, device in outputs.items():
        binding.bind_output(name, device)
    session.run_with_iobinding(binding, options)
    # Otherwise hidden states would keep those of all segments before them alive.
    binding.clear_binding_inputs()
    values: list[ort.OrtValue] = binding.get_outputs()
    return values


def _queued() -> ort.RunOptions:
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options


# ONNX Runtime returns once everything is queued on the stream.
QUEUED = _queued()
