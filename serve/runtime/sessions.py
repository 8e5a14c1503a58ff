"""ONNX Runtime sessions on the CPU: one file's, and that of all segments of a bundle."""

import math
from collections.abc import Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from serve.bundle.loader import Bundle
from serve.bundle.manifest import (
    ATTENTION_MASK,
    INPUT_IDS,
    TOKEN_TYPE_IDS,
    Precision,
)
from serve.errors import InvalidBundle
from serve.runtime.graph_ports import (
    FIRST,
    FIRST_UNASKED,
    GAPS,
    STARTS,
    STRAIGHT,
    UNASKED,
    every,
    hidden_after,
)
from serve.runtime.one_graph import OneGraph, one_graph
from serve.runtime.ort_session import AWAKE_S, RUN_OPTIONS, quick_run, session_options
from serve.runtime.straight_run import may_go_straight

Gaps = NDArray[np.float32]
ASKED = np.finfo(np.float32).max
# A lone row up to so many tokens runs in memory that is laid out for its length. In longer ones
# what that saves is not seen.
MOST_LAID_OUT = 64
# More than segments, and than lengths of layouts that batches share.
_MORE = 1 << 10
# More than rows and than tokens.
_MOST = 1 << 16
_ASKED, _UNASKED = np.zeros(2 * _MOST, np.bool_), np.ones(2 * _MOST, np.bool_)
_TRUE, _FALSE = np.array(True), np.array(False)


class Course(NamedTuple):
    """What calls of `Segments` are to do, whatever the rows; worked out once for many.

    Attributes:
        outputs: of the session: hidden states, and what heads say.
        num_hidden: how many of them are hidden states.
        feeds: inputs of the session that do not depend on the rows.
        unasked: `UNASKED`, with more behind it; None if no segment but the first runs.
        first_unasked: `FIRST_UNASKED`, likewise; None if the first does not run.
        odd: whether it reads an odd number of the rows' inputs, see `told`.
        ends: segments after which it may end; hidden states are those after all of them but the
            model's last, and one with `LEAVES`.
        lone: what `all_feeds` gave for short lone rows, by their tokens.
    """

    outputs: list[str]
    num_hidden: int
    feeds: dict[str, NDArray[Any]]
    unasked: NDArray[np.bool_] | None
    first_unasked: NDArray[np.bool_] | None
    odd: bool
    ends: list[int]
    lone: dict[int, dict[str, NDArray[Any]]]

    def all_feeds(self, rows: int, tokens: int) -> dict[str, NDArray[Any]]:
        """Return all inputs but those of the rows; to be left as they are."""
        # Of short lone rows arrays are cut once for each length: that takes 5 microseconds.
        feeds = self.lone.get(tokens) if rows == 1 else None
        if feeds is None:
            feeds = self.feeds | self.told(rows, tokens)
            if rows == 1 and tokens <= MOST_LAID_OUT:
                self.lone[tokens] = feeds
        return feeds

    def told(self, rows: int, tokens: int) -> dict[str, NDArray[Any]]:
        """Return inputs whose lengths depend on the rows.

        ONNX Runtime lays memory out as needed by the first run of those whose inputs' dimensions
        have the same exclusive or, and for as long as it lives; what does not fit is fetched piece
        by piece. So it is for each graph inside a graph. Batches share one layout: in later
        segments rows and tokens cancel out, and where the first is run and reads them an odd number
        of times, the length here evens them out. Short lone rows have their own, by their lengths.
        """
        feeds = {}
        lone = rows == 1 and tokens <= MOST_LAID_OUT
        if self.first_unasked is not None:
            evened = _MOST ^ rows ^ tokens if self.odd else _MOST
            feeds[FIRST_UNASKED] = self.first_unasked[: 1 + 2 * tokens if lone else evened]
        if self.unasked is not None:
            feeds[UNASKED] = self.unasked[: _MORE + 4 * tokens if lone else _MORE]
        return feeds


class Segments:
    """All segments of one precision, in one session (`serve.runtime.one_graph`).

    Hidden states are numpy arrays. On a CPU that is the cheapest way to call a session: IOBinding
    costs 13 microseconds more per call, `run_with_ort_values` 30.

    Attributes:
        run: runs a segment, and those after it while the gaps allow it. It takes a course's
            outputs, all its feeds for so many rows and tokens, and the inputs of the rows: ids of
            the first segment, `FIRST_HIDDEN` and `FIRST_KEEP` of others; the attention mask in any
            case; and `RUN_OPTIONS`. It gives the course's hidden states, of no rows where it did
            not come by, and what heads say, each (heads that have run * rows, ...), the first head
            first. It is the session's own method: right after a model has run, each call of
            Python's takes a microsecond or more.
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
        options = session_options(num_threads, AWAKE_S)
        options.enable_mem_pattern = True
        graph = _joined(paths, num_labels)
        self._begins_odd, self._all_odd = graph.begins_odd, graph.all_odd
        self._session = _open_all(graph.model, paths[0].parent, options)
        self.run = quick_run(self._session)
        self._num_segments = len(paths)
        self._said = [every(name) for name in said]
        self._lay_out_little(manifest.token_types)

    def __len__(self) -> int:
        return self._num_segments

    def _lay_out_little(self, token_types: bool) -> None:
        """Run one token as if it were a batch, so that batches share the smallest layout of all."""
        one = np.ones((1, 1), np.int64)
        inputs = {INPUT_IDS: one, ATTENTION_MASK: one}
        if token_types:
            inputs[TOKEN_TYPE_IDS] = np.zeros_like(one)
        ends = [end for end in range(len(self)) if may_go_straight(end, len(self))]
        for gap, end in [(ASKED, len(self) - 1), *((np.inf, end) for end in ends)]:
            gaps = np.full(len(self), gap, np.float32)
            gaps[end:] = 0
            course = self.course(0, gaps)
            self.run(course.outputs, course.all_feeds(2, 2) | inputs, RUN_OPTIONS)

    def course(self, first: int, gaps: Gaps) -> Course:
        """Return what runs are to do that begin with a segment.

        Args:
            first: the segment, counted from 0.
            gaps: (segments,) the run ends after a segment unless the two largest logits of every
                row lie closer together than this: always with 0, never with infinity, where its
                head does not run. At the last, it is finite. `LEAVES` is as 0, but gives no hidden
                states.
        """
        ends = _where_it_may_end(first, gaps)
        straight = not first and len(ends) == 1 and may_go_straight(ends[0], self._num_segments)
        feeds: dict[str, NDArray[Any]] = {}
        if straight:
            feeds[STRAIGHT] = _TRUE
        elif first:
            feeds |= {FIRST: np.array(first, np.int64), STARTS: _FALSE}
        if len(ends) > 1:
            feeds[GAPS] = gaps
        unasked = first_unasked = None
        if ends[-1]:
            unasked = np.zeros(_MORE + 4 * MOST_LAID_OUT, np.bool_)
            # After the end nothing counts as unasked: a straight run would go on there.
            unasked[: ends[-1]] = gaps[: ends[-1]] == np.inf
        if not first:
            first_unasked = _UNASKED if gaps[0] == np.inf else _ASKED
        passed_on = [end for end in ends if end < self._num_segments - 1 and gaps[end] >= 0]
        hidden = [hidden_after(0 if straight else end) for end in passed_on]
        outputs, odd = [*hidden, *self._said], self._all_odd if straight else self._begins_odd
        return Course(outputs, len(hidden), feeds, unasked, first_unasked, odd, ends, {})


def _where_it_may_end(first: int, gaps: Gaps) -> list[int]:
    """Return the segments whose exits are asked, to the first that ends the run anyhow."""
    ends: list[int] = []
    for segment, gap in enumerate(gaps[first:].tolist(), first):
        if gap < math.inf:
            ends.append(segment)
        if gap <= 0:
            break
    return ends


def _joined(paths: Sequence[Path], num_labels: int) -> OneGraph:
    try:
        return one_graph({path.name: _mapped(path) for path in paths}, num_labels)
    except ValueError as error:
        raise InvalidBundle(f"ONNX Runtime cannot load {paths[0].parent}/{error}") from None


def _open_all(model: bytes, folder: Path, options: ort.SessionOptions) -> ort.InferenceSession:
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
