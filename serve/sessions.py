"""ONNX Runtime sessions on the CPU: one file's, and that of all segments of a bundle."""

from collections.abc import Mapping, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from serve.bundle import Bundle
from serve.errors import InvalidBundle
from serve.manifest import ATTENTION_MASK, HIDDEN, INPUT_IDS, KEEP, TOKEN_TYPE_IDS, Precision
from serve.one_graph import (
    EVERY_ROW,
    FIRST,
    FIRST_HIDDEN,
    FIRST_KEEP,
    GAPS,
    LAST_HIDDEN,
    every,
    one_graph,
)
from serve.ort_environment import session_options
from serve.runner import Hidden

# Longer than what is done between two segments of a wave; much longer would cost a core.
_AWAKE_S = 0.0005
_OWN_NAMES = {HIDDEN: FIRST_HIDDEN, KEEP: FIRST_KEEP}


class Segments:
    """All segments of one precision, in one session (`serve.one_graph`).

    Hidden states are numpy arrays. On a CPU that is the cheapest way to call a session: IOBinding
    costs 13 microseconds more per call, `run_with_ort_values` 30.
    """

    def __init__(
        self, bundle: Bundle, precision: Precision, num_threads: int, said: Sequence[str]
    ) -> None:
        """Open the session.

        Args:
            bundle: where the segments are.
            precision: which variant.
            num_threads: the caller's included.
            said: the heads' outputs.

        Raises:
            InvalidBundle: ONNX Runtime cannot load them.
        """
        paths, manifest = bundle.segment_paths(precision), bundle.manifest
        traits = manifest.traits
        num_labels = len(traits.labels) if traits.task == "single_label" else 0
        self._session = _open_all(paths, num_labels, session_options(num_threads, _AWAKE_S))
        self._num_segments = len(paths)
        self._said = [every(name) for name in said]
        none = np.zeros((1, 1), np.int64)
        kind = np.float16 if precision == "fp16" else np.float32
        # What a segment does not read must be there all the same.
        self._blanks: dict[str, NDArray[Any]] = {
            INPUT_IDS: none,
            FIRST_HIDDEN: np.zeros((1, 1, manifest.width), kind),
            FIRST_KEEP: none[0],
        } | ({TOKEN_TYPE_IDS: none} if manifest.token_types else {})

    def __len__(self) -> int:
        return self._num_segments

    def run(
        self, first: int, inputs: Mapping[str, NDArray[Any]], gaps: NDArray[np.float32]
    ) -> tuple[Hidden, list[NDArray[np.float32]]]:
        """Run a segment, and those after it while the gaps allow it.

        Args:
            first: the segment, counted from 0.
            inputs: its inputs.
            gaps: (segments,) the loop goes on after a segment if the two largest logits of
                every row lie closer together than this: never with 0, and with infinity if they
                are numbers.

        Returns:
            Hidden states, None if the last segment was the first, and what heads say, each
            (segments that have run, rows, ...).
        """
        feeds = {_OWN_NAMES.get(name, name): array for name, array in inputs.items()}
        feeds[FIRST] = np.array(first, np.int64)
        feeds[EVERY_ROW] = np.arange(len(inputs[ATTENTION_MASK]))
        feeds[GAPS] = gaps
        feeds = {**self._blanks, **feeds}
        if first == self._num_segments - 1:
            return None, self._session.run(self._said, feeds)
        hidden, *said = self._session.run([LAST_HIDDEN, *self._said], feeds)
        return hidden, said


def _open_all(
    paths: Sequence[Path], num_labels: int, options: ort.SessionOptions
) -> ort.InferenceSession:
    folder = paths[0].parent
    try:
        model = one_graph({path.name: _mapped(path) for path in paths}, num_labels)
    except ValueError as error:
        raise InvalidBundle(f"ONNX Runtime cannot load {folder}/{error}") from None
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(folder)
    )
    return _open(model, options, folder)


def _mapped(path: Path) -> memoryview:
    """Return a file's bytes, which are in memory only while they are looked at."""
    if not path.stat().st_size:
        return memoryview(b"")  # of which there is no mapping
    with path.open("rb") as file:
        return memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))


def open_session(path: Path, options: ort.SessionOptions) -> ort.InferenceSession:
    """Return a session on the CPU.

    Raises:
        InvalidBundle: ONNX Runtime cannot load the file.
    """
    return _open(path, options, path)


def _open(model: Path | bytes, options: ort.SessionOptions, place: Path) -> ort.InferenceSession:
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no common type
        reason = str(error).splitlines()[0]
        raise InvalidBundle(f"ONNX Runtime cannot load {place}: {reason}") from error
