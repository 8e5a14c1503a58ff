"""Segments that run in one session give what each gives in its own, to the last bit."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import Precision
from serve.engine.runner import Step
from serve.rules.traits import Task
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.graph_ports import FIRST
from serve.runtime.ort_session import session_options
from serve.runtime.sessions import open_session
from tests.serve.support.task_bundles import LABELS, Kind, write_task_bundle

pytestmark = pytest.mark.usefixtures("deep")

Ids = NDArray[np.int64]
THREADS = (1, 2)


class OwnSessions:
    """A session per file, as a `serve.engine.runner.Runner` that runs them one by one."""

    def __init__(
        self,
        bundle: Bundle,
        precision: Precision,
        num_threads: int,
        active: Sequence[int] | None = None,
    ) -> None:
        paths = bundle.segment_paths(precision)
        self._sessions = [open_session(path, session_options(num_threads)) for path in paths]
        ends = range(len(paths)) if active is None else active
        self._runs = [range(a + 1, b + 1) for a, b in pairwise([-1, *ends])]

    def __len__(self) -> int:
        return len(self._runs)

    def start(self, ids: Ids, mask: Ids, types: Ids) -> Step:
        return self._run(0, {"input_ids": ids, "token_type_ids": types, "attention_mask": mask})

    def advance(self, index: int, hidden: Any, keep: Ids, mask: Ids) -> Step:
        return self._run(index, {"hidden": hidden, "keep": keep, "attention_mask": mask})

    def _run(self, index: int, feeds: dict[str, Any]) -> Step:
        for segment in self._runs[index]:
            session = self._sessions[segment]
            asked = {i.name: feeds[i.name] for i in session.get_inputs()}
            outputs = [o.name for o in session.get_outputs()]
            said = dict(zip(outputs, session.run(outputs, asked), strict=True))
            mask = feeds["attention_mask"]
            feeds = {"hidden": said["hidden_out"], "keep": np.arange(len(mask))}
            feeds["attention_mask"] = mask
        is_last = segment == len(self._sessions) - 1
        hidden = None if is_last else said["hidden_out"]
        return Step(hidden, said["logits"], said.get("uncertainty"))


def mask_of(lengths: NDArray[np.int64]) -> Ids:
    return (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)


def walk(chain: CpuRunner | OwnSessions, lengths: Sequence[int]) -> Iterator[Step]:
    """Run rows of these lengths; at each exit the last one leaves, and the others turn round."""
    left = np.array(lengths)
    mask = mask_of(left)
    ids = np.random.default_rng(0).integers(5, 20, mask.shape) * mask
    step = chain.start(ids, mask, np.zeros_like(ids))
    yield step
    for index in range(1, len(chain)):
        keep = np.arange(max(len(left) - 1, 1))[::-1].copy()
        left = left[keep]
        step = chain.advance(index, step.hidden, keep, mask_of(left))
        yield step


def check_step(found: Step, wanted: Step) -> None:
    for one, other in zip(found[:3], wanted[:3], strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def check_same(one: CpuRunner, other: OwnSessions, lengths: Sequence[int]) -> None:
    assert len(one) == len(other)
    for here, there in zip(walk(one, lengths), walk(other, lengths), strict=True):
        assert here.exits == 1
        check_step(here, there)


@pytest.mark.parametrize("num_threads", THREADS)
@pytest.mark.parametrize("lengths", [[1], [7], [12, 3, 9, 1], [5] * 8])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_one_session_gives_what_many_give(
    bundle: Bundle, precision: Precision, lengths: list[int], num_threads: int
) -> None:
    chain = CpuRunner(bundle, precision, num_threads)
    check_same(chain, OwnSessions(bundle, precision, num_threads), lengths)


@pytest.mark.parametrize("num_threads", THREADS)
def test_half_precision_runs_in_one_session(half_bundle: Bundle, num_threads: int) -> None:
    apart = OwnSessions(half_bundle, "fp16", num_threads)
    check_same(CpuRunner(half_bundle, "fp16", num_threads), apart, [5, 2])


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("task", LABELS)
def test_models_of_every_task_run_in_one_session(task: Task, learned: bool, tmp_path: Path) -> None:
    made = load_bundle(write_task_bundle(tmp_path, Kind(task, learned=learned)))
    for lengths in ([6, 2, 4], [3], [1, 1]):
        check_same(CpuRunner(made, "fp32", 2), OwnSessions(made, "fp32", 2), lengths)


@pytest.mark.parametrize("active", [(0, 3), (1, 2, 3), (2, 3), (3,)])
def test_neighbours_run_back_to_back_where_an_exit_is_not_active(
    bundle: Bundle, active: tuple[int, ...]
) -> None:
    chain = CpuRunner(bundle, "fp32", 1)
    apart = OwnSessions(bundle, "fp32", 1, active)
    check_same(chain.presenting(active), apart, [4, 9, 2])
    check_same(chain, OwnSessions(bundle, "fp32", 1), [4, 9, 2])


def test_neighbours_run_in_one_call(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, chain = list[int](), CpuRunner(bundle, "fp32", 1).presenting((1, 3))
    run = chain._session_run

    def count(outputs: list[str], feeds: dict[str, Any], options: Any) -> Any:
        calls.append(int(feeds.get(FIRST, 0)))
        return run(outputs, feeds, options)

    monkeypatch.setattr(chain, "_session_run", count)
    assert len([*walk(chain, [4, 9])]) == 2
    assert calls == [0, 2]


def say(path: Path, logits: Sequence[float]) -> None:
    """Change a segment's file so that its head says this of every row."""
    model = onnx.load(path)
    for node in model.graph.node:
        node.output[:] = ["said" if name == "logits" else name for name in node.output]
    zero, own = np.zeros(1, np.float32), np.array(logits, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(zero, "nothing"))
    model.graph.initializer.append(numpy_helper.from_array(own, "own"))
    model.graph.node.append(helper.make_node("Mul", ["said", "nothing"], ["none"]))
    model.graph.node.append(helper.make_node("Add", ["none", "own"], ["logits"]))
    onnx.save(model, path)


NO_NUMBERS = ([np.nan] * 3, [np.inf, 0, 0], [np.inf] * 3, [-np.inf] * 3, [0, np.nan, 0])


@pytest.mark.parametrize("logits", NO_NUMBERS, ids=str)
@pytest.mark.parametrize("strange", [(0,), (1,), (1, 2), (0, 1, 2)])
def test_exit_that_is_not_active_is_passed_whatever_its_head_says(
    bundle_copy: Callable[..., Path], strange: tuple[int, ...], logits: list[float]
) -> None:
    made = load_bundle(bundle_copy())
    for index in strange:
        say(made.segment_paths("fp32")[index], logits)
    active = tuple(index for index in range(4) if index not in strange)
    chain = CpuRunner(made, "fp32", 1)
    check_same(chain.presenting(active), OwnSessions(made, "fp32", 1, active), [4, 4, 9])
    check_same(chain, OwnSessions(made, "fp32", 1), [4, 4, 9])


@pytest.mark.parametrize("num_threads", THREADS)
def test_a_bundle_is_opened_once(
    bundle: Bundle, num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    session = ort.InferenceSession

    def count(*args: object, **kwargs: object) -> ort.InferenceSession:
        opened.append(args)
        return session(*args, **kwargs)

    monkeypatch.setattr(ort, "InferenceSession", count)
    CpuRunner(bundle, "fp32", num_threads).presenting((1, 3))
    assert len(opened) == 1
