"""What a call of the session of all segments is to do: where it may end, whose memory it shares."""

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import xor
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from serve.bundle.loader import Bundle
from serve.engine.runner import ASKED, LEAVES
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.graph_ports import (
    FIRST,
    FIRST_UNASKED,
    GAPS,
    STARTS,
    STRAIGHT,
    UNASKED,
    hidden_after,
)
from serve.runtime.ort_session import Run, quick_run
from serve.runtime.sessions import MOST_LAID_OUT, Course, Segments
from tests.support.tiny import DEPTH

FAR = float(ASKED)


@pytest.fixture(scope="module")
def segments(bundle: Bundle) -> Segments:
    return Segments(bundle, "fp32", 1, ["logits"])


def course_of(segments: Segments, first: int, gaps: Sequence[float]) -> Course:
    return segments.course(first, np.array(gaps, np.float32))


@pytest.mark.parametrize(
    ("first", "gaps", "ends"),
    [
        (0, [0, 0, 0, 0], [0]),
        (2, [0, 0, 0, 0], [2]),
        (0, [1, 0, 0, 0], [0, 1]),
        (1, [1, FAR, 2, 0], [1, 2, 3]),
        (0, [math.inf, math.inf, 0, 0], [2]),
        (0, [math.inf, 1, math.inf, 0], [1, 3]),
        (0, [math.inf, 0, math.inf, 0], [1]),
        (3, [0, 0, 0, 0], [3]),
        (0, [1, LEAVES, 0, 0], [0, 1]),
        (1, [math.inf, LEAVES, 0, 0], [1]),
    ],
)
def test_hidden_states_are_fetched_where_the_run_may_end_and_a_row_go_on(
    segments: Segments, first: int, gaps: list[float], ends: list[int]
) -> None:
    course = course_of(segments, first, gaps)
    assert course.ends == ends
    hidden = [hidden_after(end) for end in ends if end < DEPTH - 1 and gaps[end] != LEAVES]
    assert course.outputs == [*hidden, "every logits"]
    assert course.num_hidden == len(hidden)
    assert course.feeds.get(FIRST, 0) == first
    goes_on = {GAPS} if len(ends) > 1 else set()
    assert course.feeds.keys() == goes_on | ({FIRST, STARTS} if first else set()), "each takes time"
    told = course.told(3, 7)
    assert told.keys() == ({UNASKED} if ends[-1] else set()) | (set() if first else {FIRST_UNASKED})
    if UNASKED in told:
        unasked = [at < ends[-1] and gap == math.inf for at, gap in enumerate(gaps)]
        assert told[UNASKED][:DEPTH].tolist() == unasked, "a straight run goes on where it is"
    if not first:
        assert set(told[FIRST_UNASKED].tolist()) == {gaps[0] == math.inf}


def key(course: Course, rows: int, tokens: int, names: set[str], times: int) -> int:
    """Return by what ONNX Runtime tells layouts apart: the exclusive or of all dimensions.

    Args:
        course: of the run.
        rows: of it.
        tokens: of it.
        names: which of what is told the graph reads.
        times: how many of the rows' inputs it reads.
    """
    told = [len(one) for name, one in course.told(rows, tokens).items() if name in names]
    assert len(told) == len(names)
    assert all(told), "the first is looked at"
    return reduce(xor, [*told, *[rows, tokens] * times])


# What graphs in which segments run read: the first one, those after it, ways from the first, and
# on from there.
READ = [({FIRST_UNASKED}, 3), ({UNASKED}, 2), ({UNASKED, FIRST_UNASKED}, 3), ({UNASKED}, 0)]


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize(("names", "times"), READ)
def test_lone_rows_have_a_layout_for_each_length_and_batches_share_one(
    segments: Segments, names: set[str], times: int, odd: bool
) -> None:
    course = course_of(segments, 0, [math.inf] * (DEPTH - 1) + [0])._replace(odd=odd)
    times -= FIRST_UNASKED in names and not odd
    lone = [key(course, 1, tokens, names, times) for tokens in range(1, MOST_LAID_OUT + 1)]
    batches = [(2, 1), (2, 8), (8, 9), (64, 500), (1, 65), (1, 500), (4096, 1), (1, 16385)]
    together = {key(course, rows, tokens, names, times) for rows, tokens in batches}
    assert len(set(lone)) == MOST_LAID_OUT
    assert len(together) == 1
    assert together.isdisjoint(lone)


@pytest.mark.parametrize("gaps", [[math.inf] * (DEPTH - 1) + [0], [1, FAR, 2, 0]])
def test_what_short_lone_rows_are_fed_is_worked_out_once_for_each_length(
    segments: Segments, gaps: list[float]
) -> None:
    course = course_of(segments, 0, gaps)
    sizes = [(1, 7), (1, 8), (1, MOST_LAID_OUT), (2, 8), (1, MOST_LAID_OUT + 1)]
    for _ in range(2):
        for rows, tokens in sizes:
            feeds = course.all_feeds(rows, tokens)
            assert feeds.keys() == course.feeds.keys() | course.told(rows, tokens).keys()
            for name, told in course.told(rows, tokens).items():
                np.testing.assert_array_equal(feeds[name], told)
    assert list(course.lone) == [7, 8, MOST_LAID_OUT]
    assert course.all_feeds(1, 8) is course.lone[8]


def test_one_token_runs_as_a_batch_through_all_segments_before_anybody_else_does(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[tuple[object, ...]]()

    def noting(session: ort.InferenceSession) -> Run:
        def run(outputs: Sequence[str], feeds: Mapping[str, Any], options: Any) -> list[Any]:
            values = quick_run(session)(outputs, feeds, options)
            told = [len(feeds[name]) for name in (FIRST_UNASKED, UNASKED)]
            calls.append((feeds["input_ids"].shape, told, len(values[-1])))
            return values

        return run

    monkeypatch.setattr("serve.runtime.sessions.quick_run", noting)
    segments = Segments(bundle, "fp32", 1, ["logits"])
    course = course_of(segments, 0, [math.inf] * (DEPTH - 1) + [0])
    told = course.told(2, 2)
    lengths = [len(told[name]) for name in (FIRST_UNASKED, UNASKED)]
    exit_after_exit, straight = ((1, 1), lengths, DEPTH), ((1, 1), lengths, 1)
    assert calls == [exit_after_exit, straight]


@pytest.mark.parametrize(
    ("first", "gaps", "straight"),
    [
        (0, [math.inf, math.inf, math.inf, 0], True),
        (0, [math.inf, math.inf, math.inf, FAR], True),
        (0, [math.inf, math.inf, math.inf, LEAVES], True),
        (0, [math.inf, math.inf, FAR, 0], False),
        (0, [math.inf, math.inf, 0, 0], False),
        (1, [math.inf, math.inf, math.inf, 0], False),
        (0, [0, math.inf, math.inf, 0], False),
    ],
)
def test_rows_that_leave_at_the_last_exit_go_straight(
    segments: Segments, first: int, gaps: list[float], straight: bool
) -> None:
    feeds = course_of(segments, first, gaps).feeds
    assert feeds.get(FIRST, 0) == first
    assert (STRAIGHT in feeds) == straight
    assert (STARTS in feeds) == (first > 0)


def test_memory_is_laid_out(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out, session = list[bool](), ort.InferenceSession

    def note(model: object, options: ort.SessionOptions, **kwargs: Any) -> ort.InferenceSession:
        laid_out.append(options.enable_mem_pattern)
        return session(model, options, **kwargs)

    monkeypatch.setattr(ort, "InferenceSession", note)
    Segments(bundle, "fp32", 1, ["logits"])
    assert laid_out == [True]


def test_a_course_is_worked_out_once(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    chain, worked_out = CpuRunner(bundle, "fp32", 1), list[int]()
    course = Segments.course

    def count(self: Segments, first: int, gaps: object) -> Course:
        worked_out.append(first)
        return course(self, first, gaps)  # type: ignore[arg-type]

    monkeypatch.setattr(Segments, "course", count)
    for rows, tokens in ((1, 7), (1, 8), (3, 7), (3, 8)):
        ids = np.ones((rows, tokens), np.int64)
        step = chain.start(ids, ids, 0 * ids)
        chain.advance(1, step.hidden, np.arange(rows), ids)
    assert worked_out == [0, 1], "whatever the rows"
