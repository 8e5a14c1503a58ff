"""What a call of the session of all segments is to do: where it may end, whose memory it shares."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from serve.bundle import Bundle
from serve.graph_ports import AT_ONCE, FIRST, GAPS, hidden_after
from serve.ort_environment import Run, quick_run
from serve.runner import ASKED
from serve.segments import SegmentChain
from serve.sessions import Course, Segments
from tests.tiny import DEPTH

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
        (3, [0, 0, 0, 0], [3]),
    ],
)
def test_hidden_states_are_fetched_where_the_run_may_end(
    segments: Segments, first: int, gaps: list[float], ends: list[int]
) -> None:
    course = course_of(segments, first, gaps)
    assert course.ends == ends
    hidden = [hidden_after(end) for end in ends if end < DEPTH - 1]
    assert course.outputs == [*hidden, "every logits"]
    assert course.num_hidden == len(hidden)
    assert course.feeds.get(FIRST, 0) == first
    assert course.feeds.keys() == ({FIRST} if first else set()), "each feed takes time"
    assert course.gaps[:DEPTH].tolist() == gaps


def test_lone_rows_have_a_layout_for_each_length(segments: Segments) -> None:
    """ONNX Runtime tells layouts apart by the exclusive or of all inputs' dimensions."""
    one = [segments.told(1, tokens) for tokens in range(1, 129)]
    assert len(set(one)) == 128
    assert DEPTH not in one
    assert max(one) == len(course_of(segments, 0, [0] * DEPTH).gaps)


def test_waves_and_long_lone_rows_share_one_layout(segments: Segments) -> None:
    assert {segments.told(rows, tokens) for rows in (2, 8) for tokens in (1, 9, 500)} == {DEPTH}
    assert {segments.told(1, tokens) for tokens in (129, 500)} == {DEPTH}


@pytest.mark.parametrize(("rows", "tokens", "floats"), [(1, 8, 16), (1, 9, 18), (2, 8, 0)])
def test_runs_are_told_as_many_gaps(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, rows: int, tokens: int, floats: int
) -> None:
    chain, told = SegmentChain(bundle, "fp32", 1), list[int]()
    run = chain._session_run

    def note(outputs: list[str], feeds: dict[str, Any], options: Any) -> Any:
        told.append(len(feeds[GAPS]))
        return run(outputs, feeds, options)

    monkeypatch.setattr(chain, "_session_run", note)
    ids = np.ones((rows, tokens), np.int64)
    step = chain.start(ids, ids, 0 * ids)
    chain.advance(1, step.hidden, np.arange(rows), ids)
    assert told == [DEPTH + floats] * 2


def test_one_token_runs_as_a_wave_through_all_segments_before_anybody_else_does(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[tuple[object, ...]]()

    def noting(session: ort.InferenceSession) -> Run:
        def run(outputs: Sequence[str], feeds: Mapping[str, Any], options: Any) -> list[Any]:
            values = quick_run(session)(outputs, feeds, options)
            calls.append((feeds["input_ids"].shape, len(feeds[GAPS]), len(values[-1])))
            return values

        return run

    monkeypatch.setattr("serve.sessions.quick_run", noting)
    Segments(bundle, "fp32", 1, ["logits"])
    assert calls == [((1, 1), DEPTH, DEPTH), ((1, 1), DEPTH, 1)], "exit after exit, and at once"


@pytest.mark.parametrize(
    ("first", "gaps", "at_once"),
    [
        (0, [math.inf, math.inf, math.inf, 0], True),
        (0, [math.inf, math.inf, math.inf, FAR], True),
        (0, [math.inf, math.inf, FAR, 0], False),
        (0, [math.inf, math.inf, 0, 0], False),
        (1, [math.inf, math.inf, math.inf, 0], False),
        (0, [0, math.inf, math.inf, 0], False),
    ],
)
def test_rows_that_leave_at_the_last_exit_run_at_once(
    segments: Segments, first: int, gaps: list[float], at_once: bool
) -> None:
    feeds = course_of(segments, first, gaps).feeds
    assert feeds.get(FIRST, 0) == (AT_ONCE if at_once else first)
    assert set(feeds) == ({FIRST} if at_once or first else set())


def test_memory_is_laid_out(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out, session = list[bool](), ort.InferenceSession

    def note(model: object, options: ort.SessionOptions, **kwargs: Any) -> ort.InferenceSession:
        laid_out.append(options.enable_mem_pattern)
        return session(model, options, **kwargs)

    monkeypatch.setattr(ort, "InferenceSession", note)
    Segments(bundle, "fp32", 1, ["logits"])
    assert laid_out == [True]


def test_a_course_is_worked_out_once(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    chain, worked_out = SegmentChain(bundle, "fp32", 1), list[int]()
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
