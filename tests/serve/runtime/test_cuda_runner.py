"""The runner for GPUs, on the CPU provider, against the runner for CPUs."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from export.chain.join_graph import ELEMENTS, join_graph
from serve.bundle.loader import Bundle, load_bundle
from serve.engine.runner import StepOutput
from serve.errors import InvalidBundle
from serve.rules.traits import Task
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.cuda_runner import GRAPHS, CudaRunner
from serve.runtime.ort_session import session_options
from serve.runtime.trial import try_out
from tests.serve.support.task_bundles import LABELS, Kind, write_task_bundle
from tests.support.tiny import DEPTH, MAX_TOKENS, SPECIAL, WORDS

Ids = NDArray[np.int64]


def open_on_cpu(path: Path) -> ort.InferenceSession:
    return ort.InferenceSession(path, session_options(1), providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def chain(bundle: Bundle) -> CpuRunner:
    return CpuRunner(bundle, "fp32", num_threads=1)


@pytest.fixture(scope="module")
def bound(bundle: Bundle) -> CudaRunner:
    return CudaRunner(bundle, "fp32", "cpu", open_on_cpu)


def test_model_is_tried_against_its_manifest(bound: CudaRunner, bundle: Bundle) -> None:
    try_out(bound, bundle, "fp32")
    wider = bundle.manifest.model_copy(update={"width": 33})
    with pytest.raises(InvalidBundle, match="exit 1 gives hidden states of shape"):
        try_out(bound, replace(bundle, manifest=wider), "fp32")


def texts(lengths: list[int], seed: int = 0) -> tuple[Ids, Ids, Ids]:
    """Return ids, mask and token types of random texts, padded."""
    generator = np.random.default_rng(seed)
    shape = len(lengths), max(lengths)
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    ids = generator.integers(len(SPECIAL), len(SPECIAL) + len(WORDS), shape) * mask
    return ids, mask, np.zeros_like(ids)


def cut(mask: Ids, keep: Ids) -> Ids:
    """Return the mask of some rows, as narrow as they allow."""
    rows = mask[keep]
    return np.ascontiguousarray(rows[:, : rows.sum(axis=1).max()])


@settings(max_examples=25, deadline=None)
@given(data=st.data(), lengths=st.lists(st.integers(1, MAX_TOKENS), min_size=1, max_size=6))
def test_pruned_and_reordered_rows_have_the_same_logits(
    chain: CpuRunner, bound: CudaRunner, data: st.DataObject, lengths: list[int]
) -> None:
    ids, mask, types = texts(lengths)
    expected, found = chain.start(ids, mask, types), bound.start(ids, mask, types)
    np.testing.assert_array_equal(found.logits, expected.logits)
    for index in range(1, DEPTH):
        rows = st.permutations(range(len(mask)))
        order = data.draw(rows)[: data.draw(st.integers(1, len(mask)))]
        keep = np.array(order, np.int64)
        mask = cut(mask, keep)
        expected = chain.advance(index, expected.hidden, keep, mask)
        found = bound.advance(index, found.hidden, keep, mask)
        np.testing.assert_array_equal(found.logits, expected.logits)
    assert found.hidden is None


@settings(max_examples=25, deadline=None)
@given(
    batches=st.lists(
        st.lists(st.integers(1, MAX_TOKENS), min_size=1, max_size=4), min_size=2, max_size=4
    ),
    dropped=st.booleans(),
)
def test_joined_batches_go_on_as_one(
    chain: CpuRunner, bound: CudaRunner, batches: list[list[int]], dropped: bool
) -> None:
    masks, here, there = [], [], []
    for seed, lengths in enumerate(batches):
        inputs = texts(lengths, seed)
        keep = np.arange(len(lengths), dtype=np.int64)[::-1]
        keep = keep[: max(1, len(keep) - dropped)]
        masks.append(cut(inputs[1], keep))
        here.append((chain.start(*inputs).hidden, keep, masks[-1].shape[1]))
        there.append((bound.start(*inputs).hidden, keep, masks[-1].shape[1]))
    longest = max(mask.shape[1] for mask in masks)
    mask = np.concatenate([np.pad(m, ((0, 0), (0, longest - m.shape[1]))) for m in masks])
    every_row = np.arange(len(mask))
    expected = chain.advance(1, chain.join(here), every_row, mask)
    found = bound.advance(1, bound.join(there), every_row, mask)
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-5)


@pytest.mark.parametrize("active", [(3,), (1, 3), (0, 3), (0, 1, 2, 3)])
def test_segments_between_active_exits_run_as_one(
    chain: CpuRunner, bound: CudaRunner, active: tuple[int, ...]
) -> None:
    ids, mask, types = texts([9, 4, 1])
    fewer = bound.presenting(active)
    assert len(fewer) == len(active)
    expected = chain.start(ids, mask, types)
    logits = [expected.logits]
    for index in range(1, DEPTH):
        expected = chain.advance(index, expected.hidden, np.arange(3), mask)
        logits.append(expected.logits)
    step = fewer.start(ids, mask, types)
    np.testing.assert_array_equal(step.logits, logits[active[0]])
    for until, exit_index in enumerate(active):
        at_once = fewer.start(ids, mask, types, until)
        np.testing.assert_array_equal(at_once.logits, logits[exit_index])
    for index, exit_index in enumerate(active[1:], 1):
        to_last = fewer.advance(index, step.hidden, np.arange(3), mask, len(active) - 1)
        np.testing.assert_array_equal(to_last.logits, logits[-1])
        step = fewer.advance(index, step.hidden, np.arange(3), mask)
        np.testing.assert_array_equal(step.logits, logits[exit_index])


@pytest.mark.parametrize("task", LABELS)
@pytest.mark.parametrize("learned", [False, True])
def test_heads_of_every_task_give_the_same(tmp_path: Path, task: Task, learned: bool) -> None:
    tiny = load_bundle(write_task_bundle(tmp_path, Kind(task, learned=learned)))
    here, there = CpuRunner(tiny, "fp32", 1), CudaRunner(tiny, "fp32", "cpu", open_on_cpu)
    ids, mask, types = texts([9, 4, 1])
    expected, found = here.start(ids, mask, types), there.start(ids, mask, types)
    keep = np.array([2, 0])
    for index in range(1, len(here)):
        assert_same_outputs(found, expected, learned)
        assert found.hidden is not None
        mask = cut(mask, keep)
        expected = here.advance(index, expected.hidden, keep, mask)
        found = there.advance(index, found.hidden, keep, mask)
        keep = np.arange(2)
    assert_same_outputs(found, expected, learned)
    assert found.hidden is expected.hidden is None
    tokens = (9,) if task == "token" else ()
    assert found.logits.shape == (2, *tokens, len(LABELS[task]))


def assert_same_outputs(found: StepOutput, expected: StepOutput, learned: bool) -> None:
    np.testing.assert_array_equal(found.logits, expected.logits)
    assert (found.uncertainty is not None) == learned
    if found.uncertainty is not None:
        assert found.uncertainty.shape == (len(found.logits),)
        np.testing.assert_array_equal(found.uncertainty, expected.uncertainty)


def test_hidden_states_never_become_arrays(
    bound: CudaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[int]] = []
    numpy = ort.OrtValue.numpy
    monkeypatch.setattr(ort.OrtValue, "numpy", lambda v: read.append(v.shape()) or numpy(v))
    ids, mask, types = texts([9, 4])
    steps = [bound.start(ids, mask, types) for _ in range(2)]
    keep = np.array([1, 0])
    hidden = bound.join([(step.hidden, keep, 9) for step in steps])
    bound.advance(1, hidden, np.arange(4), np.concatenate([mask, mask]))
    assert read == [[2, 3], [2, 3], [4, 3]], "rows x labels, and nothing else"


def test_masks_and_choices_that_do_not_change_are_uploaded_once(
    bound: CudaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded: list[tuple[int, ...]] = []
    upload = ort.OrtValue.ortvalue_from_numpy

    def watch(array: Ids, device: str) -> ort.OrtValue:
        uploaded.append(array.shape)
        return upload(array, device)

    monkeypatch.setattr(ort.OrtValue, "ortvalue_from_numpy", watch)
    ids, mask, types = texts([11, 4, 7])
    step = bound.start(ids, mask, types)
    for index in range(1, DEPTH):
        step = bound.advance(index, step.hidden, np.arange(3), mask)
    rows, order = ids.shape, (3,)
    assert sorted(uploaded) in ([order, *3 * [rows]], 3 * [rows]), "rows in order: perhaps before"
    bound.start(ids, mask.copy(), types)
    assert len(uploaded) in (6, 7), "another mask is another"


def test_inner_segments_of_a_run_are_queued(
    bound: CudaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = list(_watched(monkeypatch, lambda: bound.presenting((1, 3)).start(*texts([5]))))
    assert waited == [False, True]


def _watched(monkeypatch: pytest.MonkeyPatch, act: object) -> Iterator[bool]:
    """Yield, per run of a session, whether the caller waits for the device."""
    options: list[ort.RunOptions | None] = []
    run = ort.InferenceSession.run_with_iobinding

    def watch(session: object, binding: object, chosen: ort.RunOptions | None = None) -> None:
        options.append(chosen)
        run(session, binding, chosen)

    monkeypatch.setattr(ort.InferenceSession, "run_with_iobinding", watch)
    partial(act)()  # type: ignore[operator]
    key = "disable_synchronize_execution_providers"
    for chosen in options:
        yield chosen is None or chosen.get_run_config_entry(key) != "1"


@pytest.mark.parametrize("name", ELEMENTS)
def test_the_shipped_join_graphs_are_those_that_export_writes(name: str, tmp_path: Path) -> None:
    from export.chain.join_graph import ir

    ir.save(join_graph(ELEMENTS[name]), tmp_path / "join.onnx")
    shipped = (GRAPHS / f"join.{name}.onnx").read_bytes()
    assert (tmp_path / "join.onnx").read_bytes() == shipped, "run python -m export.chain.join_graph"
