"""ONNX Runtime sessions on the CPU: one file's, and that of all segments of a bundle."""

import math
from collections.abc import Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from serve.bundle import Bundle
from serve.errors import InvalidBundle
from serve.graph_ports import AT_ONCE, FIRST, GAPS, every, hidden_after
from serve.manifest import (
    ATTENTION_MASK,
    INPUT_IDS,
    TOKEN_TYPE_IDS,
    Precision,
)
from serve.one_graph import one_graph
from serve.ort_environment import quick_run, session_options
from serve.runner import ASKED, Gaps

# Longer than what is done between two segments of a wave; much longer would cost a core.
_AWAKE_S = 0.0005
# A lone row up to so many tokens runs in memory that is laid out for its length. In longer ones
# what that saves is not seen.
MOST_LAID_OUT = 128


class Course(NamedTuple):
    """What calls of `Segments` are to do, whatever the rows; worked out once for many.

    Attributes:
        outputs: of the session: hidden states, and what heads say.
        num_hidden: how many of them are hidden states.
        feeds: inputs of the session that do not depend on the rows.
        gaps: the same, with more behind them than any row is told; see `Segments.told`.
        ends: segments after which it may end; hidden states are those after all of them but the
            model's last.
    """

    outputs: list[str]
    num_hidden: int
    feeds: dict[str, NDArray[Any]]
    gaps: Gaps
    ends: list[int]


class Segments:
    """All segments of one precision, in one session (`serve.one_graph`).

    Hidden states are numpy arrays. On a CPU that is the cheapest way to call a session: IOBinding
    costs 13 microseconds more per call, `run_with_ort_values` 30.

    Attributes:
        run: runs a segment, and those after it while the gaps allow it. It takes a course's
            outputs, and its feeds with `GAPS`, as many as are `told`, and the inputs of the rows:
            ids of the first segment, `FIRST_HIDDEN` and `FIRST_KEEP` of others; the attention mask
            in any case; and None. It gives the hidden states after each of the course's ends but
            the model's last, of no rows where it did not come by, and what heads say, each (heads
            that have run * rows, ...), the first head first. It is the session's own method:
            right after a model has run, each call of Python's takes a microsecond or more.
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
        options = session_options(num_threads, _AWAKE_S)
        options.enable_mem_pattern = True
        self._session = _open_all(paths, num_labels, options)
        self.run = quick_run(self._session)
        self._num_segments = len(paths)
        self._said = [every(name) for name in said]
        self._lay_out_little(manifest.token_types)

    def __len__(self) -> int:
        return self._num_segments

    def _lay_out_little(self, token_types: bool) -> None:
        """Run one token as if it were a wave, so that waves share the smallest layout of all."""
        one = np.ones((1, 1), np.int64)
        inputs = {INPUT_IDS: one, ATTENTION_MASK: one}
        if token_types:
            inputs[TOKEN_TYPE_IDS] = np.zeros_like(one)
        for gap in (ASKED, np.inf):
            gaps = np.full(self._num_segments, gap, np.float32)
            gaps[-1] = 0
            course = self.course(0, gaps)
            wave = {GAPS: course.gaps[: self._num_segments]}
            self.run(course.outputs, course.feeds | wave | inputs, None)

    def course(self, first: int, gaps: Gaps) -> Course:
        """Return what runs are to do that begin with a segment.

        Args:
            first: the segment, counted from 0.
            gaps: (segments,) the run ends after a segment unless the two largest logits of every
                row lie closer together than this: always with 0, never with infinity, where its
                head does not run. At the last, it is finite.
        """
        ends = _where_it_may_end(first, gaps)
        hidden = [hidden_after(end) for end in ends if end < self._num_segments - 1]
        feeds: dict[str, NDArray[Any]] = {}
        at_once = first == 0 and ends == [self._num_segments - 1]
        if first or at_once:
            feeds[FIRST] = np.array(AT_ONCE if at_once else first, np.int64)
        padded = np.concatenate([gaps, np.zeros(2 * MOST_LAID_OUT, np.float32)])
        return Course([*hidden, *self._said], len(hidden), feeds, padded, ends)

    def told(self, rows: int, tokens: int) -> int:
        """Return how many gaps a run is told: more than there are segments, of a short lone row.

        ONNX Runtime lays memory out as needed by the first run of those whose inputs' dimensions
        have the same exclusive or, and for as long as it lives; what does not fit is fetched
        piece by piece. In a segment's branch, rows and tokens cancel out. So waves share one
        layout, and only that the gaps are more than the segments gives lone rows their own.
        """
        return self._num_segments + (2 * tokens if rows == 1 and tokens <= MOST_LAID_OUT else 0)


def _where_it_may_end(first: int, gaps: Gaps) -> list[int]:
    """Return the segments whose exits are asked, to the first that ends the run anyhow."""
    ends: list[int] = []
    for segment, gap in enumerate(gaps[first:].tolist(), first):
        if gap < math.inf:
            ends.append(segment)
        if gap == 0:
            break
    return ends


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
