"""Shared layers: rows at any depths in one batch, and none of them the worse for it."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from serve.runtime.shared_layers import SharedLayers

from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import Precision
from serve.errors import DeviceUnavailable, InvalidBundle
from serve.rules.traits import Task
from serve.runtime import cuda_provider as cuda
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.placement import Placement, build_runner, place
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.tiny import DEPTH, LABELS, MAX_TOKENS, SPECIAL, WORDS, tiny_model

PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")
VOCABULARY = len(SPECIAL) + len(WORDS)

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]
Runners = dict[Precision, SharedLayers]


class Arrival(NamedTuple):
    """A text and the batch it joins first."""

    ids: Ids
    batch: int


@pytest.fixture(scope="module")
def runners(shared_bundle: Bundle) -> Runners:
    return {p: SharedLayers(shared_bundle, p, num_threads=1) for p in PRECISIONS}


def mask_of(lengths: list[int]) -> Ids:
    return (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)


def fly(runner: SharedLayers, arrivals: list[Arrival], seed: int = 0) -> list[Logits]:
    """Run rows that arrive at different times as one batch; return (exits, labels) per row.

    Every batch is in another order, and a row that has run the last layer is gone.
    """
    generator = np.random.default_rng(seed)
    said = [np.empty((0, len(LABELS)), np.float32) for _ in arrivals]
    tags, depths = np.empty(0, np.int64), np.empty(0, np.int64)
    hidden = None
    last = max(arrival.batch for arrival in arrivals)
    for batch in range(last + len(runner)):
        lengths = [len(arrivals[tag].ids) for tag in tags]
        parts = [(hidden, np.arange(len(tags)), max(lengths))] if len(tags) else []
        for tag, arrival in enumerate(arrivals):
            if arrival.batch == batch:
                ids = arrival.ids[None]
                step = runner.start(ids, np.ones_like(ids), np.zeros_like(ids))
                assert step.logits.shape == (1, len(LABELS))
                assert np.isnan(step.logits).all()
                parts.append((step.hidden, np.array([0]), len(arrival.ids)))
                tags, depths = np.append(tags, tag), np.append(depths, 0)
        if not len(tags):
            continue
        keep = generator.permutation(len(tags))
        tags, depths = tags[keep], depths[keep]
        mask = mask_of([len(arrivals[tag].ids) for tag in tags])
        hidden, logits, *_ = runner.advance_mixed(depths, runner.join(parts), keep, mask)
        depths = depths + 1
        for tag, depth, row in zip(tags, depths, logits, strict=True):
            if depth in runner.exits:
                said[tag] = np.vstack([said[tag], row])
        stay = depths < len(runner)
        hidden, tags, depths = hidden[stay], tags[stay], depths[stay]
    assert not len(tags)
    return said


def alone(runner: SharedLayers, ids: Ids) -> Logits:
    return fly(runner, [Arrival(ids, 0)])[0]


def texts(max_size: int = MAX_TOKENS) -> st.SearchStrategy[Ids]:
    words = st.integers(len(SPECIAL), VOCABULARY - 1)
    return st.lists(words, min_size=1, max_size=max_size).map(lambda ids: np.array(ids, np.int64))


@pytest.mark.parametrize("precision", PRECISIONS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    arrivals=st.lists(st.builds(Arrival, texts(40), st.integers(0, 5)), min_size=1, max_size=12),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_row_gets_the_same_bits_among_rows_at_any_depths(
    runners: Runners, precision: Precision, arrivals: list[Arrival], seed: int
) -> None:
    runner = runners[precision]
    together = fly(runner, arrivals, seed)
    for arrival, said in zip(arrivals, together, strict=True):
        np.testing.assert_array_equal(said, alone(runner, arrival.ids))


@settings(max_examples=40, deadline=None)
@given(ids=texts(), late=texts())
def test_every_exit_of_a_mixed_batch_is_the_original_models(
    runners: Runners, ids: Ids, late: Ids
) -> None:
    arrivals = [Arrival(ids, 0), Arrival(late, 2)]
    for arrival, said in zip(arrivals, fly(runners["fp32"], arrivals), strict=True):
        tokens = torch.from_numpy(arrival.ids)[None]
        with torch.no_grad():
            original = tiny_model(family="albert")(tokens, torch.ones_like(tokens))
        expected = np.vstack([logits.numpy() for logits in original])
        np.testing.assert_allclose(said, expected, atol=1e-4)


def test_int8_answers_like_fp32(runners: Runners) -> None:
    generator = np.random.default_rng(0)
    rows = [generator.integers(len(SPECIAL), VOCABULARY, 16) for _ in range(100)]
    exact, coarse = (
        np.stack(fly(runners[p], [Arrival(ids, i % 5) for i, ids in enumerate(rows)]))
        for p in PRECISIONS
    )
    assert (exact.argmax(-1) == coarse.argmax(-1)).mean(axis=0).min() >= 0.9


@pytest.fixture
def few_exits(shared_bundle: Bundle) -> SharedLayers:
    """Return the bundle's layers with heads after layers 2 and 4 only."""
    manifest = shared_bundle.manifest
    exits = tuple(e for e in manifest.exits if e.layer in (2, 4))
    fewer = replace(shared_bundle, manifest=manifest.model_copy(update={"exits": exits}))
    return SharedLayers(fewer, "fp32", num_threads=1)


def test_rows_between_two_exits_go_on_without_a_word(
    few_exits: SharedLayers, runners: Runners
) -> None:
    ids = np.arange(4, 10)
    assert (len(few_exits), few_exits.exits) == (DEPTH, (2, 4))
    # The second row is one layer behind, so in each batch one of the two is between exits.
    early, late = fly(few_exits, [Arrival(ids, 0), Arrival(ids, 1)])
    every = alone(runners["fp32"], ids)
    np.testing.assert_array_equal(early, every[[1, 3]])
    np.testing.assert_array_equal(late, every[[1, 3]])


def test_no_head_is_silence_and_one_head_leaves_the_others_silent(few_exits: SharedLayers) -> None:
    ids = np.arange(4, 12).reshape(2, 4)
    mask = np.ones_like(ids)
    hidden = few_exits.start(ids, mask, 0 * ids).hidden
    nobody = few_exits.advance_mixed(np.array([0, 0]), hidden, np.arange(2), mask)
    assert np.isnan(nobody.logits).all()
    one = few_exits.advance_mixed(np.array([1, 2]), nobody.hidden, np.arange(2), mask)
    assert np.isnan(one.logits).all(axis=1).tolist() == [False, True]


@pytest.mark.parametrize("task", ["single_label", "token"])
def test_where_no_head_speaks_there_is_no_uncertainty_either(tmp_path: Path, task: Task) -> None:
    tiny = load_bundle(write_task_bundle(tmp_path, Kind(task, shared=True, learned=True)))
    runner = SharedLayers(tiny, "fp32", num_threads=1)  # with heads after 1, 2 and 4
    ids = np.arange(4, 12).reshape(2, 4)
    mask = np.ones_like(ids)
    step = runner.start(ids, mask, 0 * ids)
    assert step.uncertainty is not None
    assert np.isnan(step.uncertainty).tolist() == [True, True]
    shape = step.logits.shape
    assert shape == ((2, 4, 5) if task == "token" else (2, 3))
    for depths, silent in (([0, 0], [False, False]), ([1, 2], [False, True]), ([2, 2], [True] * 2)):
        said = runner.advance_mixed(np.array(depths), step.hidden, np.arange(2), mask)
        assert said.uncertainty is not None
        assert np.isnan(said.uncertainty).tolist() == silent
        assert said.logits.shape == shape
        assert np.isnan(said.logits).reshape(2, -1).all(axis=1).tolist() == silent


def test_rows_are_chosen_and_padding_is_cut(runners: Runners) -> None:
    runner = runners["fp32"]
    ids = np.arange(4, 22).reshape(3, 6)
    hidden = runner.start(ids, np.ones_like(ids), 0 * ids).hidden
    mask = mask_of([3, 4])
    chosen = runner.advance_mixed(np.array([0, 2]), hidden, np.array([2, 0]), mask)
    same = runner.advance_mixed(
        np.array([0, 2]), np.ascontiguousarray(hidden[[2, 0], :4]), np.arange(2), mask
    )
    assert chosen.hidden.shape == (2, 4, 32)
    np.testing.assert_array_equal(chosen.hidden, same.hidden)
    np.testing.assert_array_equal(chosen.logits, same.logits)


def test_a_bundle_gets_the_runner_that_its_layers_need(
    bundle: Bundle, shared_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "fault", lambda: None)
    for wish in ("auto", "cpu"):
        assert place(shared_bundle, wish, "fp32") == ("cpu", "fp32")
    with pytest.raises(DeviceUnavailable, match="share their weights; such models run on CPUs"):
        place(shared_bundle, "cuda", "fp32")
    here = Placement("cpu", "fp32")
    assert isinstance(build_runner(shared_bundle, here, 1), SharedLayers)
    assert isinstance(build_runner(bundle, here, 1), CpuRunner)
    with pytest.raises(InvalidBundle, match="bundle tiny: its layers are not shared"):
        SharedLayers(bundle, "fp32", 1)
    with pytest.raises(InvalidBundle, match="bundle shared has no segments: its layers share"):
        CpuRunner(shared_bundle, "fp32", 1)
