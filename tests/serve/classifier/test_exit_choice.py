import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.assembly import assemble
from serve.bundle.loader import Bundle, load_bundle, sha256_of
from serve.bundle.recording import RECORDING
from serve.classifier import exit_choice
from serve.classifier.exit_choice import choose_exits
from serve.classifier.options import EngineOptions
from serve.errors import InvalidRequest
from serve.policy.database import Database
from serve.runtime.placement import Placement, build_runner
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.tiny import DEPTH, LABELS, recording

CopyBundle = Callable[..., Path]


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


def test_active_exits_of_an_unknown_model_are_refused(bundle: Bundle) -> None:
    with pytest.raises(InvalidRequest):
        assemble([bundle.folder], EngineOptions(), Database(), {"tony": [4]})


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
