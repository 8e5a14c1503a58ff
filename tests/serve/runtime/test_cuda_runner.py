"""The runner for GPUs, on the CPU provider, against the runner for CPUs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from export import bundle as bundles
from export.chain import gpu_segments
from export.chain.take_graph import ELEMENTS, take_graph
from models.encoders.families import build_encoder
from models.heads import HeadConfig
from models.multi_exit import ExitConfig, MultiExitModel
from serve.bundle.loader import Bundle, load_bundle
from serve.errors import InvalidBundle
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.cuda_runner import CudaRunner
from serve.runtime.device_memory import Block, HostMemory
from serve.runtime.ort_session import session_options
from serve.runtime.placement import try_out
from serve.runtime.row_taker import GRAPHS
from serve.runtime.step_inputs import attention_lengths, shares
from tests.support.tiny import DEPTH, MAX_TOKENS, SPECIAL, WORDS, tiny_model, tiny_tokenizer

Ids = NDArray[np.int64]
# The same sums in another order.
CLOSE = {"atol": 2e-5}


class CountedMemory(HostMemory):
    """The host's memory, and every copy: ("up" or "down", bytes)."""

    def __init__(self) -> None:
        self.copies: list[str] = []

    def upload(self, block: Block, num_bytes: int) -> None:
        self.copies.append("up")
        super().upload(block, num_bytes)

    def download(self, block: Block, num_bytes: int) -> None:
        self.copies.append("down")
        super().download(block, num_bytes)


def open_on_cpu(path: Path) -> ort.InferenceSession:
    return ort.InferenceSession(path, session_options(1), providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def full_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Return the tiny bundle with graphs for GPUs that are not halved, to see every digit."""
    folder = tmp_path_factory.mktemp("full")
    tiny_model().save(folder / "model")
    return export_in_full(folder)


def export_in_full(folder: Path) -> Bundle:
    tiny_tokenizer().save(str(folder / "model" / "tokenizer.json"))
    with pytest.MonkeyPatch.context() as patch:
        for halve in ("halve", "halve_head"):
            patch.setattr(gpu_segments, halve, lambda model: model)
        bundles.write(bundles.plan(folder / "model", ("fp32", "fp16")), folder / "bundle")
    return load_bundle(folder / "bundle")


@pytest.fixture(scope="module")
def chain(full_bundle: Bundle) -> CpuRunner:
    return CpuRunner(full_bundle, "fp32", num_threads=1)


@pytest.fixture(scope="module")
def memory() -> CountedMemory:
    return CountedMemory()


@pytest.fixture(scope="module")
def bound(full_bundle: Bundle, memory: CountedMemory) -> CudaRunner:
    return CudaRunner(full_bundle, "fp16", memory, open_on_cpu)


def test_model_is_tried_against_its_manifest(bound: CudaRunner, full_bundle: Bundle) -> None:
    try_out(bound, full_bundle, "fp16")
    wider = full_bundle.manifest.model_copy(update={"width": 33})
    with pytest.raises(InvalidBundle, match="exit 1 gives hidden states of shape"):
        try_out(bound, replace(full_bundle, manifest=wider), "fp16")


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
    np.testing.assert_allclose(found.logits, expected.logits, **CLOSE)
    for index in range(1, DEPTH):
        rows = st.permutations(range(len(mask)))
        order = data.draw(rows)[: data.draw(st.integers(1, len(mask)))]
        keep = np.array(order, np.int64)
        mask = cut(mask, keep)
        expected = chain.advance(index, expected.hidden, keep, mask)
        found = bound.advance(index, found.hidden, keep, mask)
        np.testing.assert_allclose(found.logits, expected.logits, **CLOSE)
    assert found.hidden is None


def test_a_batch_is_queued_before_the_one_before_it_is_read(
    chain: CpuRunner, bound: CudaRunner
) -> None:
    batches = [texts([7, 3, 5], seed=1), texts([4, 9], seed=2), texts([2], seed=3)]
    queued = [bound.start(*batch, until=DEPTH - 1) for batch in batches]
    for batch, found in list(zip(batches, queued, strict=True))[::-1]:
        expected = chain.start(*batch, until=DEPTH - 1)
        np.testing.assert_allclose(found.logits, expected.logits, **CLOSE)


@settings(max_examples=25, deadline=None)
@given(
    batches=st.lists(
        st.lists(st.integers(1, MAX_TOKENS), min_size=1, max_size=4), min_size=2, max_size=4
    ),
    dropped=st.booleans(),
)
def test_joined_batches_go_on_as_one(
    chain: CpuRunner,
    bound: CudaRunner,
    memory: CountedMemory,
    batches: list[list[int]],
    dropped: bool,
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
    memory.copies.clear()
    joined = bound.join(there)
    assert memory.copies == ["up"]
    found = bound.advance(1, joined, every_row, mask)
    np.testing.assert_allclose(found.logits, expected.logits, **CLOSE)


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
    np.testing.assert_allclose(step.logits, logits[active[0]], **CLOSE)
    for until, exit_index in enumerate(active):
        at_once = fewer.start(ids, mask, types, until)
        np.testing.assert_allclose(at_once.logits, logits[exit_index], **CLOSE)
    step = fewer.start(ids, mask, types)
    for index, exit_index in enumerate(active[1:], 1):
        to_last = fewer.advance(index, step.hidden, np.arange(3), mask, len(active) - 1)
        np.testing.assert_allclose(to_last.logits, logits[-1], **CLOSE)
        step = fewer.advance(index, step.hidden, np.arange(3), mask)
        np.testing.assert_allclose(step.logits, logits[exit_index], **CLOSE)


TASKS = {
    "learned": ExitConfig(exits=(1, 2), head=HeadConfig(uncertainty="pooler")),
    "token": ExitConfig(exits=(1, 2), task="token", head=HeadConfig(pooling="tokens")),
}


@pytest.mark.parametrize("kind", TASKS)
def test_all_that_heads_give_comes_in_one_copy(kind: str, tmp_path: Path) -> None:
    config = tiny_model().config
    config.num_hidden_layers = 2
    MultiExitModel(build_encoder(config), TASKS[kind]).eval().save(tmp_path / "model")
    tiny, memory = export_in_full(tmp_path), CountedMemory()
    here, there = CpuRunner(tiny, "fp32", 1), CudaRunner(tiny, "fp16", memory, open_on_cpu)
    ids, mask, types = texts([9, 4, 1])
    expected, found = here.start(ids, mask, types), there.start(ids, mask, types)
    keep = np.array([2, 0])
    mask = cut(mask, keep)
    expected = here.advance(1, expected.hidden, keep, mask)
    found = there.advance(1, found.hidden, keep, mask)
    assert memory.copies == ["up", "down"] * 2
    real = mask.astype(bool) if kind == "token" else slice(None)
    np.testing.assert_allclose(found.logits[real], expected.logits[real], **CLOSE)
    assert (found.uncertainty is None) == (kind == "token")
    if found.uncertainty is not None:
        np.testing.assert_allclose(found.uncertainty, expected.uncertainty, **CLOSE)


def test_a_step_is_one_copy_up_and_one_down(bound: CudaRunner, memory: CountedMemory) -> None:
    ids, mask, types = texts([11, 4, 7])
    memory.copies.clear()
    step = bound.start(ids, mask, types)
    assert memory.copies == ["up", "down"]
    step = bound.advance(1, step.hidden, np.arange(3), mask)
    assert memory.copies == ["up", "down", "down"], "rows that go on unchanged are there already"
    keep = np.array([2, 1])
    step = bound.advance(2, step.hidden, keep, cut(mask, keep))
    assert memory.copies == ["up", "down", "down", "up", "down"]
    bound.start(ids, mask.copy(), types)
    assert memory.copies[-2:] == ["up", "down"], "another mask is another"


def test_only_the_head_at_the_end_of_a_run_runs(
    bound: CudaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, watched = texts([5, 3]), watch_runs(monkeypatch)
    bound.start(*batch, 2)
    assert watched() == ["hidden_out"] * 3 + ["logits"]
    step = bound.presenting((1, 3)).start(*batch)
    assert watched() == ["hidden_out"] * 2 + ["logits"]
    bound.advance(3, step.hidden, np.array([1]), batch[1][1:, :3])
    assert watched() == ["taken", "hidden_out", "logits"]


def watch_runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Return what sessions give, run after run, since the last call; all must be queued."""
    given: list[str] = []
    run = ort.InferenceSession.run_with_iobinding
    key = "disable_synchronize_execution_providers"

    def watch(
        session: ort.InferenceSession, binding: object, options: ort.RunOptions | None = None
    ) -> None:
        assert options is not None
        assert options.get_run_config_entry(key) == "1"
        given.append(session.get_outputs()[0].name)
        run(session, binding, options)

    def read() -> list[str]:
        names = given.copy()
        given.clear()
        return names

    monkeypatch.setattr(ort.InferenceSession, "run_with_iobinding", watch)
    return read


def test_heads_of_exits_that_are_not_active_are_not_loaded(full_bundle: Bundle) -> None:
    opened = []

    def open_session(path: Path) -> ort.InferenceSession:
        opened.append(path.name)
        return open_on_cpu(path)

    CudaRunner(full_bundle.presenting((2, 4)), "fp16", HostMemory(), open_session)
    heads = sorted(name for name in opened if "head" in name)
    assert heads == ["02.head.onnx", "04.head.onnx"]


def test_hidden_states_never_become_arrays(
    bound: CudaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(value: ort.OrtValue) -> None:
        raise AssertionError(value.shape())

    monkeypatch.setattr(ort.OrtValue, "numpy", refuse)
    ids, mask, types = texts([9, 4])
    steps = [bound.start(ids, mask, types) for _ in range(2)]
    keep = np.array([1, 0])
    hidden = bound.join([(step.hidden, keep, 9) for step in steps])
    bound.advance(1, hidden, np.arange(4), np.concatenate([mask, mask]))


def test_a_batch_larger_than_the_buffers_is_taken(chain: CpuRunner, bound: CudaRunner) -> None:
    batch = texts([MAX_TOKENS] * 200)
    np.testing.assert_allclose(bound.start(*batch).logits, chain.start(*batch).logits, **CLOSE)


def test_attention_on_cuda_is_told_where_rows_begin() -> None:
    lengths = np.array([5, 2, 3], np.int32)
    on_cuda = attention_lengths(lengths, 6, "cuda")
    assert on_cuda.dtype == np.int32
    assert on_cuda.tolist() == [5, 2, 3, *(0, 6, 12, 18), *(0, 6, 12, 18)]
    assert attention_lengths(lengths, 6, "cpu").tolist() == [5, 2, 3]


def test_shares_of_a_row_add_up_to_one() -> None:
    mask = (np.arange(4) < np.array([[4], [1], [0]])).astype(np.int64)
    found = shares(mask, mask.sum(axis=1, dtype=np.int32))
    assert found.tolist() == [[[0.25]] * 4, [[1.0], [0.0], [0.0], [0.0]], [[0.0]] * 4]


@pytest.mark.parametrize("name", ELEMENTS)
def test_the_shipped_graphs_are_those_that_export_writes(name: str, tmp_path: Path) -> None:
    from export.chain.take_graph import ir

    ir.save(take_graph(ELEMENTS[name]), tmp_path / "take.onnx")
    shipped = (GRAPHS / f"take.{name}.onnx").read_bytes()
    assert (tmp_path / "take.onnx").read_bytes() == shipped, "run python -m export.chain.take_graph"
