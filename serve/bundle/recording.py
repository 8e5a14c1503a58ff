"""What every exit said of the calibration data: to try rules and exits on.

`recording.npy` is of the data that the model was measured on after its training. A ladder has a
recording of its own, of the texts that certify it: `offramp calibrate` writes it.
"""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from serve.bundle.manifest import Table
from serve.errors import InvalidBundle
from serve.policy.ladder import Ladder
from serve.rules.replay import Logits, Recording, unjudged_before
from serve.rules.table import NgramTable
from serve.rules.traits import Traits

RECORDING: Final = "recording.npy"
# The beginning of the names of the files of `certifying_files`.
CERTIFYING: Final = "certifying-"
# Larger ones are not written: those of taggers have the logits of every token.
MOST_CERTIFYING_BYTES: Final = 16 << 20
_KINDS: Final = {"logits": "f", "counted": "b", "uncertainty": "f"}
_NAMED: Final = {"f": "floating-point numbers", "b": "booleans"}


def read_recording(path: Path, shape: tuple[int, int]) -> Logits:
    """Read a recording.

    Args:
        path: a `.npy` file; pickled objects in it are refused.
        shape: (exits, labels) of the model.

    Raises:
        InvalidBundle: it is damaged or of another model.
    """
    logits = _mapped(path, "f")
    if logits.ndim != 3 or logits.shape[::2] != shape or not logits.shape[1]:
        raise InvalidBundle(
            f"{path} has shape {logits.shape}; expected ({shape[0]} exits, rows, {shape[1]} labels)"
        )
    return np.array(logits, np.float32, order="C")


def read_table(path: Path, table: Table, num_labels: int, vocab_size: int | None) -> NgramTable:
    """Read a bundle's table.

    Raises:
        InvalidBundle: it is damaged or of another model.
    """
    rows = _mapped(path, "f")
    vocabulary = vocab_size or max(1, len(rows) - table.buckets)
    wanted = (vocabulary + table.buckets, num_labels)
    if rows.shape != wanted or rows.dtype != np.float16 or not np.isfinite(rows).all():
        raise InvalidBundle(
            f"{path} is not the model's table: expected finite float16 numbers of shape {wanted}"
        )
    return NgramTable(rows, table.buckets, table.bias)


def certifying_files(ladder: Ladder) -> dict[str, str]:
    """Return the names of the files that hold the fields of a ladder's recording, by field."""
    variant = sha256(f"{ladder.weights} {ladder.exits}".encode()).hexdigest()[:8]
    stem = f"{CERTIFYING}{ladder.precision}-{variant}"
    return {field: f"{stem}.{field}.npy" for field in _KINDS}


def read_certifying(
    folder: Path, listed: Mapping[str, str], ladder: Ladder, traits: Traits
) -> Recording | None:
    """Return what the exits said of the texts that certify a ladder; None if it is not kept.

    Args:
        folder: the bundle's folder.
        listed: the files of the bundle by name.
        ladder: the variant's ladder, as it is stored.
        traits: the variant's traits.

    Raises:
        InvalidBundle: it is damaged, or of other texts.
    """
    files = certifying_files(ladder)
    if files["logits"] not in listed:
        return None
    needed = ["logits"] + ["counted"] * (traits.task == "token") + ["uncertainty"] * traits.learned
    if missing := next((files[field] for field in needed if files[field] not in listed), None):
        raise InvalidBundle(f"{folder}: {missing} is missing")
    found = {field: _mapped(folder / files[field], _KINDS[field]) for field in needed}
    rows, tokens = ladder.num_certifying, found["logits"].shape[2:-1]
    shapes = {"counted": (rows, *tokens), "uncertainty": (len(ladder.exits), rows)}
    shapes["logits"] = (len(ladder.layers), rows, *tokens, len(traits.labels))
    for field, array in found.items():
        if array.shape != shapes[field] or array.nbytes > MOST_CERTIFYING_BYTES:
            raise InvalidBundle(f"{folder / files[field]} is not of the texts that certify")
    arrays = {name: np.array(array) for name, array in found.items()}
    if new := len(traits.layers) - len(ladder.layers):  # certified before these places were there
        had_table = int(ladder.table is not None)
        table, others = np.split(arrays["logits"], [had_table])
        arrays["logits"] = np.concatenate([table, unjudged_before(others, new)])
    return Recording(traits, ladder.temperatures, **arrays)


def _mapped(path: Path, kind: str) -> NDArray[Any]:
    try:
        # Mapped: a header that promises more than the file holds takes no memory.
        array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # of a wrong header; they have no common type
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidBundle(f"{path} is no array: {reason}") from None
    if array.dtype.kind != kind:
        raise InvalidBundle(f"{path} is no array of {_NAMED[kind]}")
    return array
