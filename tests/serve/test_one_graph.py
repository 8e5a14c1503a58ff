"""Segments that run in one session give what each gives in its own, to the last bit."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

from serve.bundle import Bundle, load_bundle
from serve.errors import InvalidBundle
from serve.manifest import Precision
from serve.one_graph import one_graph
from serve.runner import Step
from serve.segments import SegmentChain
from serve.traits import Task
from tests.serve.task_bundles import LABELS, Kind, write_task_bundle

# Adds its number to what it is given, and says the sum.
SEGMENT = """
    <ir_version: 10, opset_import: ["" : 18]>
    segment (float[rows_in] hidden, int64[rows] keep)
    => (float[rows] hidden_out, float[rows] logits)
    <float[1] own = {{{number}.0}}>
    {{ kept = Gather(hidden, keep)
       hidden_out = Add(kept, own)
       logits = Identity(hidden_out) }}
"""


def models(number: int) -> dict[str, memoryview]:
    parsed = [parser.parse_model(SEGMENT.format(number=k)) for k in range(number)]
    return {f"{k}.onnx": memoryview(m.SerializeToString()) for k, m in enumerate(parsed)}


def answers(session: ort.InferenceSession, segment: int) -> list[float]:
    feeds = {
        "segment": np.array(segment, np.int64),
        "hidden": np.array([10, 20, 30], np.float32),
        "keep": np.array([2, 0], np.int64),
    }
    hidden, logits = session.run(["hidden_out", "logits"], feeds)
    assert hidden.tolist() == logits.tolist()
    return hidden.tolist()


@pytest.mark.parametrize("number", [2, 3, 6, 12])
def test_graph_runs_the_segment_that_it_is_asked_for(number: int) -> None:
    joined = one_graph(models(number))
    onnx.checker.check_model(joined, full_check=True)
    session = ort.InferenceSession(joined, providers=["CPUExecutionProvider"])
    assert [answers(session, k) for k in range(number)] == [[30 + k, 10 + k] for k in range(number)]


def test_segments_with_other_outputs_are_no_chain() -> None:
    other = SEGMENT.replace("logits", "scores").format(number=1)
    odd = memoryview(parser.parse_model(other).SerializeToString())
    with pytest.raises(ValueError, match=r"odd\.onnx: not the outputs"):
        one_graph({**models(1), "odd.onnx": odd})


def test_operator_sets_of_any_segment_are_there() -> None:
    chain = models(2)
    odd = onnx.load_from_string(bytes(chain["1.onnx"]))
    odd.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    chain["1.onnx"] = memoryview(odd.SerializeToString())
    joined = onnx.load_from_string(one_graph(chain))
    assert {o.domain: o.version for o in joined.opset_import} == {"": 18, "com.microsoft": 1}


def test_weights_stay_in_their_files(bundle: Bundle) -> None:
    paths = bundle.segment_paths("fp32")
    files = {path.name: memoryview(path.read_bytes()) for path in paths}
    assert len(one_graph(files)) < 0.5 * sum(map(len, files.values()))


def both(bundle: Bundle, precision: Precision) -> tuple[SegmentChain, SegmentChain]:
    """Return the chain in one session of two threads, and in a session of one thread each."""
    return SegmentChain(bundle, precision, 2), SegmentChain(bundle, precision, 1)


def walk(chain: SegmentChain, lengths: Sequence[int]) -> Iterator[Step]:
    """Run rows of these lengths; at each exit the last one leaves, and the others turn round."""
    lengths = np.array(lengths)
    mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    ids = np.random.default_rng(0).integers(5, 20, mask.shape) * mask
    step = chain.start(ids, mask, np.zeros_like(ids))
    yield step
    for index in range(1, len(chain)):
        keep = np.arange(max(len(lengths) - 1, 1))[::-1].copy()
        lengths = lengths[keep]
        mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
        step = chain.advance(index, step.hidden, keep, mask)
        yield step


def check_same(one: SegmentChain, other: SegmentChain, lengths: Sequence[int]) -> None:
    for here, there in zip(walk(one, lengths), walk(other, lengths), strict=True):
        np.testing.assert_array_equal(here.logits, there.logits)
        assert (here.hidden is None) == (there.hidden is None)
        if here.hidden is not None:
            np.testing.assert_array_equal(here.hidden, there.hidden)


@pytest.mark.parametrize("lengths", [[1], [7], [12, 3, 9, 1], [5] * 8])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_one_session_gives_what_many_give(
    bundle: Bundle, precision: Precision, lengths: list[int]
) -> None:
    check_same(*both(bundle, precision), lengths)


def test_half_precision_runs_in_one_session(half_bundle: Bundle) -> None:
    check_same(*both(half_bundle, "fp16"), [5, 2])


@pytest.mark.parametrize("task", LABELS)
def test_models_of_every_task_run_in_one_session(task: Task, tmp_path: Path) -> None:
    made = load_bundle(write_task_bundle(tmp_path, Kind(task, learned=task == "token")))
    check_same(*both(made, "fp32"), [6, 2, 4])


def test_neighbours_run_back_to_back_where_an_exit_is_not_active(bundle: Bundle) -> None:
    active = (0, len(bundle.manifest.exits) - 1)
    joined, apart = (c.presenting(active) for c in both(bundle, "fp32"))
    assert len(joined) == 2
    check_same(joined, apart, [4, 9, 2])


def test_with_one_thread_there_is_nothing_to_keep_awake(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    session = ort.InferenceSession

    def count(*args: object, **kwargs: object) -> ort.InferenceSession:
        opened.append(args)
        return session(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(ort, "InferenceSession", count)
    SegmentChain(bundle, "fp32", 2)
    assert len(opened) == 1
    SegmentChain(bundle, "fp32", 1)
    assert len(opened) == 1 + len(bundle.segment_paths("fp32"))


@pytest.mark.parametrize("content", [b"\xff" * 100, b"\x0f", b"not a model", b"\x3a\x02\x0a\x00"])
def test_files_that_are_no_chain_are_refused(
    bundle_copy: Callable[..., Path], content: bytes
) -> None:
    broken = load_bundle(bundle_copy())
    broken.segment_paths("fp32")[1].write_bytes(content)
    with pytest.raises(InvalidBundle, match="fp32"):
        SegmentChain(broken, "fp32", 2)
