"""`recording.npy`: what every exit said of the calibration data, to try rules and exits on."""

from pathlib import Path

import numpy as np

from serve.errors import InvalidBundle
from serve.rules.replay import Logits

RECORDING = "recording.npy"


def read_recording(path: Path, shape: tuple[int, int]) -> Logits:
    """Read a recording.

    Args:
        path: a `.npy` file; pickled objects in it are refused.
        shape: (exits, labels) of the model.

    Raises:
        InvalidBundle: it is damaged or of another model.
    """
    try:
        # Mapped: a header that promises more than the file holds takes no memory.
        logits = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # of a wrong header; they have no common type
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidBundle(f"{path} is no array: {reason}") from None
    if logits.dtype.kind != "f":
        raise InvalidBundle(f"{path} is no array of floating-point numbers")
    if logits.ndim != 3 or logits.shape[::2] != shape or not logits.shape[1]:
        raise InvalidBundle(
            f"{path} has shape {logits.shape}; expected ({shape[0]} exits, rows, {shape[1]} labels)"
        )
    return np.array(logits, np.float32, order="C")
