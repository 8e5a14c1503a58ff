"""The joined graph in one session gives what each segment gives by itself, to the last bit."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper, numpy_helper, parser

from export.chain.weights import WeightsFile
from export.files import save_joined, save_segment
from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import FIRST, UNTIL, WEIGHTS, Precision
from serve.engine.runner import StepOutput
from serve.errors import InvalidBundle
from serve.rules.traits import Task
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.ort_session import open_session, session_options
from tests.serve.support.task_bundles import LABELS, Kind, write_task_bundle
from tests.support.tiny import DEPTH

Ids = NDArray[np.int64]
VARIANTS: list[tuple[str, Precision]] = [
    ("bundle", "fp32"),
    ("bundle", "int8"),
    ("shared_bundle", "fp32"),
    ("shared_bundle", "int8"),
]
ACTIVE = [(0, 1, 2, 3), (0, 3), (1, 2, 3), (1, 3), (3,)]
NOT_FINITE = ([np.nan] * 3, [np.inf, 0, 0], [0, np.nan, 0])


class OwnSessions:
    """A session per segment, each run in a call of its own."""

    def __init__(
        self,
        bundle: Bundle,
        precision: Precision,
        num_threads: int = 1,
        active: Sequence[int] | None = None,
    ) -> None:
        paths = bundle.segment_paths(precision)
        self._sessions = [open_session(path, session_options(num_threads)) for path in paths]
        ends = range(len(paths)) if active is None else active
        self._runs = [range(a + 1, b + 1) for a, b in pairwise([-1, *ends])]

    def __len__(self) -> int:
        return len(self._runs)

    def start(self, ids: Ids, mask: Ids, types: Ids, until: int = 0) -> StepOutput:
        feeds = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
        return self._run(0, until, feeds)

    def advance(self, index: int, hidden: Any, keep: Ids, mask: Ids, until: int) -> StepOutput:
        return self._run(index, until, {"hidden": hidden, "keep": keep, "attention_mask": mask})

    def _run(self, index: int, until: int, feeds: dict[str, Any]) -> StepOutput:
        mask = feeds["attention_mask"]
        for segment in range(self._runs[index].start, self._runs[until].stop):
            session = self._sessions[segment]
            inputs = {i.name: feeds[i.name] for i in session.get_inputs()}
            names = [output.name for output in session.get_outputs()]
            found = dict(zip(names, session.run(names, inputs), strict=True))
            feeds = {"hidden": found["hidden_out"], "keep": np.arange(len(mask))}
            feeds["attention_mask"] = mask
        hidden = None if segment == len(self._sessions) - 1 else found["hidden_out"]
        return StepOutput(hidden, found["logits"], found.get("uncertainty"))


def mask_of(lengths: NDArray[np.int64]) -> Ids:
    return (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)


def walk(
    runner: CpuRunner | OwnSessions, lengths: Sequence[int], stops: Sequence[int]
) -> Iterator[StepOutput]:
    """Run rows of these lengths from stop to stop; at each the last row leaves, the rest reverse.

    Args:
        runner: what runs them.
        lengths: in tokens.
        stops: active exits, ascending.
    """
    left = np.array(lengths)
    mask = mask_of(left)
    ids = np.random.default_rng(0).integers(5, 20, mask.shape) * mask
    step = runner.start(ids, mask, np.zeros_like(ids), stops[0])
    yield step
    for before, stop in pairwise(stops):
        keep = np.arange(max(len(left) - 1, 1))[::-1].copy()
        left = left[keep]
        step = runner.advance(before + 1, step.hidden, keep, mask_of(left), stop)
        yield step


def assert_same_steps(
    one: CpuRunner, other: OwnSessions, lengths: Sequence[int], stops: Sequence[int]
) -> None:
    steps = zip(walk(one, lengths, stops), walk(other, lengths, stops), strict=True)
    for found, wanted in steps:
        for value, expected in zip(found[:3], wanted[:3], strict=True):
            assert (value is None) == (expected is None)
            if value is not None:
                assert value.dtype == expected.dtype
                np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("active", ACTIVE)
@pytest.mark.parametrize(("fixture", "precision"), VARIANTS)
def test_any_run_gives_what_the_segments_give_one_by_one(
    fixture: str, precision: Precision, active: tuple[int, ...], request: pytest.FixtureRequest
) -> None:
    bundle: Bundle = request.getfixturevalue(fixture)
    runner = CpuRunner(bundle, precision, 1).presenting(active)
    apart = OwnSessions(bundle, precision, active=active)
    assert len(runner) == len(apart) == len(active)
    for first in range(len(active)):
        for until in range(first, len(active)):
            stops = [*range(first), until]
            for lengths in ([7], [12, 3, 9, 1]):
                assert_same_steps(runner, apart, lengths, stops)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_two_threads_give_what_one_gives(bundle: Bundle, precision: Precision) -> None:
    apart = OwnSessions(bundle, precision, num_threads=2)
    assert_same_steps(CpuRunner(bundle, precision, 2), apart, [5] * 8, [0, 2, 3])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("task", LABELS)
def test_models_of_every_task_run(task: Task, learned: bool, shared: bool, tmp_path: Path) -> None:
    bundle = load_bundle(write_task_bundle(tmp_path, Kind(task, shared, learned)))
    runner, apart = CpuRunner(bundle, "fp32", 2), OwnSessions(bundle, "fp32", 2)
    for lengths in ([6, 2, 4], [3], [1, 1]):
        for stops in ([0, 1, 2], [0, 2], [2]):
            assert_same_steps(runner, apart, lengths, stops)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    variant=st.sampled_from(VARIANTS[:4]),
    length=st.integers(1, 40),
    mates=st.integers(0, 12),
    until=st.integers(0, DEPTH - 1),
    seed=st.integers(0, 999),
)
def test_a_row_gets_the_same_bits_in_any_batch(
    runners: dict[tuple[str, Precision], CpuRunner],
    variant: tuple[str, Precision],
    length: int,
    mates: int,
    until: int,
    seed: int,
) -> None:
    runner, generator = runners[variant], np.random.default_rng(seed)
    place = generator.integers(mates + 1)
    lengths = generator.integers(1, 60, mates + 1)
    lengths[place] = length
    mask = mask_of(lengths)
    ids = generator.integers(5, 200, mask.shape) * mask
    row = np.ascontiguousarray(ids[place : place + 1, :length])
    alone = runner.start(row, np.ones_like(row), 0 * row, until)
    together = runner.start(ids, mask, 0 * ids, until)
    np.testing.assert_array_equal(together.logits[place], alone.logits[0])
    if until < DEPTH - 1:
        keep = np.array([place])
        later = runner.advance(until + 1, together.hidden, keep, np.ones_like(row), DEPTH - 1)
        full = runner.advance(until + 1, alone.hidden, np.array([0]), np.ones_like(row), DEPTH - 1)
        np.testing.assert_array_equal(later.logits, full.logits)


@pytest.fixture(scope="module")
def runners(bundle: Bundle, shared_bundle: Bundle) -> dict[tuple[str, Precision], CpuRunner]:
    bundles = {"bundle": bundle, "shared_bundle": shared_bundle}
    return {(name, p): CpuRunner(bundles[name], p, 1) for name, p in VARIANTS[:4]}


def test_a_run_is_one_call(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, runner = list[tuple[int, int]](), CpuRunner(bundle, "fp32", 1).presenting((1, 3))
    run = runner._session_run

    def count(outputs: list[str], feeds: dict[str, Any], options: Any) -> Any:
        calls.append((int(feeds.get(FIRST, 0)), int(feeds[UNTIL])))
        return run(outputs, feeds, options)

    monkeypatch.setattr(runner, "_session_run", count)
    assert len([*walk(runner, [4, 9], [0, 1])]) == 2
    assert len([*walk(runner, [4, 9], [1])]) == 1
    assert calls == [(0, 1), (2, 3), (0, 3)]


def give_logits(path: Path, logits: Sequence[float]) -> None:
    """Change a segment's file so that its head gives these logits for every row."""
    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        node.output[:] = ["before" if name == "logits" else name for name in node.output]
    zero, own = np.zeros(1, np.float32), np.array(logits, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(zero, "nothing"))
    model.graph.initializer.append(numpy_helper.from_array(own, "own"))
    model.graph.node.append(helper.make_node("Mul", ["before", "nothing"], ["none"]))
    model.graph.node.append(helper.make_node("Add", ["none", "own"], ["logits"]))
    onnx.save(model, path)


@pytest.mark.parametrize("logits", NOT_FINITE, ids=str)
def test_logits_of_inactive_exits_change_nothing(
    bundle_copy: Callable[..., Path], logits: list[float]
) -> None:
    bundle = load_bundle(bundle_copy())
    paths = bundle.segment_paths("fp32")
    apart = OwnSessions(bundle, "fp32", active=(0, 3))
    for index in (1, 2):
        give_logits(paths[index], logits)
    save_joined(paths, bundle.joined_path("fp32"))
    runner = CpuRunner(bundle, "fp32", 1)
    assert_same_steps(runner.presenting((0, 3)), apart, [4, 4, 9], [0, 1])
    strange = runner.start(np.full((1, 3), 7), np.ones((1, 3), np.int64), np.zeros((1, 3), int), 1)
    np.testing.assert_array_equal(strange.logits, np.array([logits], np.float32))


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"not a model", b"\x3a\x02\x0a\x00"])
def test_a_file_that_is_no_model_is_refused(
    bundle_copy: Callable[..., Path], content: bytes
) -> None:
    bundle = load_bundle(bundle_copy())
    bundle.joined_path("fp32").write_bytes(content)
    with pytest.raises(InvalidBundle, match=r"cannot load .*fp32/joined\.onnx: "):
        CpuRunner(bundle, "fp32", 2)


def test_weights_that_are_missing_are_refused(bundle_copy: Callable[..., Path]) -> None:
    bundle = load_bundle(bundle_copy())
    bundle.weights_path("fp32").write_bytes(b"")
    with pytest.raises(InvalidBundle, match=r"cannot load .*fp32/joined\.onnx: "):
        CpuRunner(bundle, "fp32", 2)


# Prints how many bytes of its own memory the process holds more once the session is open.
OPENING = """
import sys
from pathlib import Path
from serve.runtime.ort_session import open_session, session_options
from serve.runtime.process_memory import settle_memory

def own_bytes():
    return 1024 * int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0])

before = own_bytes()
session = open_session(Path(sys.argv[1]), session_options(1))
settle_memory()
print(own_bytes() - before)
"""
HEAVY = """
    <ir_version: 10, opset_import: ["" : 18]>
    segment ({inputs}, int64[rows, tokens] attention_mask)
    => (float[rows, tokens, 1024] hidden_out, float[rows, 2] logits)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}>
    {{ {begin}
       hidden_out = MatMul(entered, W)
       pooled = ReduceSum<keepdims = 0>(hidden_out, one)
       logits = MatMul(pooled, H) }}
"""
BEGIN = "int64[rows, tokens] input_ids", "entered = Gather(E, input_ids)"
GO_ON = (
    "float[rows_in, tokens_in, 1024] hidden, int64[rows] keep",
    """kept = Gather(hidden, keep)
       width = Shape<start = 1, end = 2>(attention_mask)
       entered = Slice(kept, zero, width, one)""",
)


def write_heavy_chain(folder: Path, weights: Sequence[NDArray[np.float32]]) -> Path:
    """Write segments of one product each, and return their joined graph."""
    file = WeightsFile(folder / WEIGHTS)
    small = {"H": np.ones((1024, 2), np.float32), "E": np.ones((9, 1024), np.float32)}
    paths = [folder / f"{index}.onnx" for index in range(len(weights))]
    for path, own in zip(paths, weights, strict=True):
        inputs, begin = BEGIN if path == paths[0] else GO_ON
        model = parser.parse_model(HEAVY.format(inputs=inputs, begin=begin))
        for name, array in ({"W": own} | small).items():
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        save_segment(ir.from_proto(model), path, file)
    save_joined(paths, folder / "joined.onnx")
    return folder / "joined.onnx"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("shared", [False, True])
def test_memory_holds_every_weight_once(tmp_path: Path, shared: bool) -> None:
    """Also weights that all segments have in common, as the layers of ALBERT."""
    number, weights = 8, np.ones((1024, 1024), np.float32)
    joined = write_heavy_chain(tmp_path, [weights * (1 if shared else i) for i in range(number)])
    different = weights.nbytes * (1 if shared else number)
    assert different < (tmp_path / WEIGHTS).stat().st_size < different + 100_000
    command = [sys.executable, "-c", OPENING, str(joined)]
    held = subprocess.run(command, capture_output=True, check=True, timeout=60, text=True).stdout
    assert 0.9 < int(held) / different < (2 if shared else 1.4)
