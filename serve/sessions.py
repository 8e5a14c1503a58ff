"""ONNX Runtime sessions on the CPU: one per segment, or one for all."""

from collections.abc import Mapping, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from serve.bundle import Bundle
from serve.errors import InvalidBundle
from serve.manifest import HIDDEN, HIDDEN_OUT, INPUT_IDS, KEEP, TOKEN_TYPE_IDS, Manifest, Precision
from serve.one_graph import SEGMENT, one_graph
from serve.ort_environment import session_options
from serve.runner import Step

# Longer than what is done between two segments of a wave; much longer would cost a core.
_AWAKE_S = 0.0005


def open_segments(
    bundle: Bundle, precision: Precision, num_threads: int, said: list[str]
) -> list["Segment"]:
    """Return the segments: of one session where that spares its threads to be woken for each.

    Args:
        bundle: where they are.
        precision: which variant.
        num_threads: of every session, the caller's included.
        said: the heads' outputs.

    Raises:
        InvalidBundle: ONNX Runtime cannot load them.
    """
    paths = bundle.segment_paths(precision)
    last = [path == paths[-1] for path in paths]
    if num_threads == 1 or len(paths) == 1:
        options = session_options(num_threads)
        apart = zip(paths, last, strict=True)
        return [Segment(open_session(path, options), said, is_last, {}) for path, is_last in apart]
    session = _open_all(paths, session_options(num_threads, _AWAKE_S))
    blanks = _blanks(bundle.manifest, precision)
    return [
        Segment(session, said, is_last, {**blanks, SEGMENT: np.array(index, np.int64)})
        for index, is_last in enumerate(last)
    ]


def _open_all(paths: Sequence[Path], options: ort.SessionOptions) -> ort.InferenceSession:
    folder = paths[0].parent
    try:
        model = one_graph({path.name: _mapped(path) for path in paths})
    except ValueError as error:
        raise InvalidBundle(f"ONNX Runtime cannot load {folder}/{error}") from None
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(folder)
    )
    return _open(model, options, folder)


def _mapped(path: Path) -> memoryview:
    """Return a file's bytes, which are in memory only while they are looked at."""
    with path.open("rb") as file:
        return memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))


def _blanks(manifest: Manifest, precision: Precision) -> dict[str, NDArray[Any]]:
    """Return inputs for the segments that do not read them."""
    none = np.zeros((1, 1), np.int64)
    blanks: dict[str, NDArray[Any]] = {
        INPUT_IDS: none,
        HIDDEN: np.zeros((1, 1, manifest.width), np.float16 if precision == "fp16" else np.float32),
        KEEP: none[0],
    }
    return blanks | ({TOKEN_TYPE_IDS: none} if manifest.token_types else {})


class Segment:
    """A segment in a session: one of its own, or one that runs them all (`serve.one_graph`).

    Hidden states are numpy arrays. On a CPU that is the cheapest way to call a session: IOBinding
    costs 13 microseconds more per call, `run_with_ort_values` 30.
    """

    def __init__(
        self,
        session: ort.InferenceSession,
        said: list[str],
        last: bool,
        common: Mapping[str, NDArray[Any]],
    ) -> None:
        """Take a session.

        Args:
            session: that runs it.
            said: the heads' outputs.
            last: nobody asks for its hidden states.
            common: inputs that are the same in every run.
        """
        self._session, self._common, self._last = session, common, last
        self._outputs = said if last else [HIDDEN_OUT, *said]

    def pass_on(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Return hidden states only: nobody asks this exit."""
        hidden: NDArray[Any]
        (hidden,) = self._session.run([HIDDEN_OUT], {**self._common, **inputs})
        return hidden

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Step:
        """Return hidden states, None from the last, and what the heads say."""
        given = self._session.run(self._outputs, {**self._common, **inputs})
        return Step(None, *given) if self._last else Step(*given)


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
