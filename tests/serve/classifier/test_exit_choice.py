import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.assembly import assemble
from serve.bundle.loader import Bundle, load_bundle, sha256_of
from serve.bundle.manifest import Precision
from serve.bundle.recording import RECORDING, read_recording
from serve.classifier import exit_choice, exit_costs
from serve.classifier.exit_choice import choose_exits
from serve.classifier.options import EngineOptions
from serve.engine.core import EngineCore
from serve.engine.shape import ModelShape
from serve.errors import InvalidBundle, InvalidRequest
from serve.policy.database import Database
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.placement import Placement, build_runner
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.tiny import DEPTH, LABELS, recording

CopyBundle = Callable[..., Path]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_active_exits_say_what_they_say_among_all(bundle: Bundle, precision: Precision) -> None:
    every = CpuRunner(bundle, precision, 1)
    some = CpuRunner(bundle.presenting((1, 4)), precision, 1)
    ids = np.random.default_rng(0).integers(4, 200, (3, 7))
    mask, types = np.ones_like(ids), np.zeros_like(ids)
    mask[1, 4:] = 0
    steps = [every.start(ids, mask, types)]
    keep, shorter = np.array([2, 1]), mask[[2, 1], :6]
    for index in range(1, DEPTH):
        chosen = keep if index == 1 else np.arange(2)
        steps.append(every.advance(index, steps[-1].hidden, chosen, shorter))
    assert len(some) == 2
    first = some.start(ids, mask, types)
    np.testing.assert_array_equal(first.logits, steps[0].logits)
    last = some.advance(1, first.hidden, keep, shorter)
    np.testing.assert_array_equal(last.logits, steps[-1].logits)
    np.testing.assert_array_equal(
        every.presenting((3,)).start(ids, mask, types).logits,
        CpuRunner(bundle, precision, 1)
        .presenting((1, 3))
        .advance(1, every.presenting((1, 3)).start(ids, mask, types).hidden, np.arange(3), mask)
        .logits,
    )


@pytest.mark.parametrize("wish", ["2,4", "1,5", "4,1", "1,1,4", "1,2", "", "all"])
def test_a_wish_that_cannot_be_granted_is_refused(bundle: Bundle, wish: str) -> None:
    with pytest.raises(InvalidRequest):
        choose_exits(wish, bundle, Placement("cpu", "fp32"), 1)


def test_auto_keeps_what_the_policy_names_and_drops_what_the_default_rule_never_uses(
    bundle: Bundle,
) -> None:
    # The default rule is `never`, the profile `fast` is layer 1.
    assert choose_exits("auto", bundle, Placement("cpu", "fp32"), 1) == [1, 4]


def test_auto_keeps_an_exit_where_all_leave(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()

    def leave_when_sure(document: dict) -> None:
        document["policy"] = {"default": {"rule": "entropy", "threshold": 0.5}}

    rewrite_manifest(folder, leave_when_sure)
    sure_at_two = np.zeros((DEPTH, 10, len(LABELS)), np.float32)
    sure_at_two[1:, :, 0] = 50
    save_recording(folder, sure_at_two)
    # Asking layer 1 is in vain; asking layer 3 costs nothing, for no text comes so far.
    assert choose_exits("auto", load_bundle(folder), Placement("cpu", "fp32"), 1) == [2, 3, 4]


def save_recording(folder: Path, logits: np.ndarray) -> None:
    np.save(folder / RECORDING, logits)
    listed = sha256_of(folder / RECORDING)
    rewrite_manifest(folder, lambda document: document["files"].update({RECORDING: listed}))


def test_auto_is_refused_where_no_recording_tells_what_the_default_rule_would_do(
    bundle_copy: CopyBundle, tmp_path: Path
) -> None:
    bare = bundle_copy()
    (bare / RECORDING).unlink()
    rewrite_manifest(bare, lambda document: document["files"].pop(RECORDING))
    learned = write_task_bundle(tmp_path / "learned", Kind("single_label", learned=True))
    policy = {"default": {"rule": "learned", "threshold": 0.1}}
    rewrite_manifest(learned, lambda document: document.update(policy=policy))
    tagger = write_task_bundle(tmp_path / "tagger", Kind("token"))
    for folder in (bare, learned, tagger):
        with pytest.raises(InvalidRequest) as refused:
            choose_exits("auto", load_bundle(folder), Placement("cpu", "fp32"), 1)
        # Nothing makes a recording of a tagger, so no message may ask for one.
        assert ("offramp train" in str(refused.value)) == (folder is bare)


def test_exits_of_a_regression_are_chosen_too(tmp_path: Path) -> None:
    folder = write_task_bundle(tmp_path, Kind("regression"))
    policy = {"default": {"rule": "patience", "patience": 1, "tolerance": 0.5}}
    rewrite_manifest(folder, lambda document: document.update(policy=policy))
    bundle = load_bundle(folder)
    constant = np.zeros((len(bundle.manifest.exit_layers), 10, 1), np.float32)
    save_recording(folder, constant)
    chosen = choose_exits("auto", load_bundle(folder), Placement("cpu", "fp32"), 1)
    assert chosen[-1] == bundle.manifest.exit_layers[-1]


def test_the_recording_travels_with_the_model(bundle: Bundle) -> None:
    np.testing.assert_array_equal(bundle.recording, recording())


@pytest.mark.parametrize(
    "content",
    [
        np.zeros((DEPTH, 2)),
        np.zeros((DEPTH, 0, 3)),
        np.zeros((DEPTH - 1, 2, 3)),
        np.array([{"a": "pickle"}], object),
        np.full((DEPTH, 2, 3), "a"),
        b"PK\x05\x06" + bytes(18),
        b"",
        b"nonsense",
    ],
)
def test_a_damaged_recording_is_refused(tmp_path: Path, content: np.ndarray | bytes) -> None:
    path = tmp_path / RECORDING
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content, allow_pickle=True)
    with pytest.raises(InvalidBundle):
        read_recording(path, (DEPTH, len(LABELS)))


def test_active_exits_of_an_unknown_model_are_refused(bundle: Bundle) -> None:
    with pytest.raises(InvalidRequest):
        assemble([bundle.folder], EngineOptions(), Database(), {"tony": [4]})


def test_what_an_exit_costs_is_measured_on_one_engine(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def make(*arguments: Any, **more: Any) -> EngineCore:
        made.append(EngineCore(*arguments, **more))
        return made[-1]

    monkeypatch.setattr(exit_costs, "EngineCore", make)
    shape = ModelShape(bundle.manifest.traits, (1.0,) * DEPTH)
    costs = exit_costs.measure_exit_costs(CpuRunner(bundle, "fp32", 1), shape, num_tokens=32)
    assert len(made) == 1
    assert len(costs.segment_s) == DEPTH
    assert min(costs.segment_s) > 0


def test_auto_keeps_to_the_limit_on_memory_and_gives_all_back(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, loaded, gone = [], [], []

    def build(bundle: Bundle, placement: Placement, num_threads: int, limit: Any) -> object:
        chain = build_runner(bundle, placement, num_threads, limit)
        limits.append(limit)
        loaded.append(weakref.ref(chain))
        return chain

    monkeypatch.setattr(exit_choice, "build_runner", build)
    monkeypatch.setattr(exit_choice, "give_back_memory", lambda: gone.append(loaded[0]() is None))
    choose_exits("auto", bundle, Placement("cpu", "fp32"), 1, gpu_memory_gb=2.0)
    assert limits == [2.0]
    assert gone == [True]
