"""The shipped model: small, loadable, and as good as its card says."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from models.data.datasets import read_dataset
from models.multi_exit import MultiExitModel
from models.profiles import profiles_policy
from models.quality.card import exit_table
from models.quality.recorded import inputs, recorded
from models.quality.scores import score
from models.quality.source import TorchSource
from serve.bundle.calibration import Calibration, VariantCalibration
from serve.bundle.loader import TOKENIZER
from serve.bundle.recording import RECORDING, read_recording
from serve.policy.document import Policy
from tests.support.traits import two_labels

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "models" / "zoo" / "sst2-minilm"
DEV = ROOT.parent / "shared" / "data" / "sst2" / "dev.tsv"
MAX_BYTES = 50_000_000
NUM_RUN = 64


def figures() -> VariantCalibration:
    text = (FOLDER / "calibration.json").read_text("utf-8")
    return Calibration.model_validate_json(text).variants["fp32"]


def policy() -> Policy:
    return Policy.model_validate_json((FOLDER / "policy.json").read_text("utf-8"))


def test_folder_holds_the_model_and_nothing_else() -> None:
    files = list(FOLDER.iterdir())
    kept = {path.name for path in files if path.name.startswith("certifying-")}
    assert {name.split("-")[1] for name in kept} == {"fp32", "int8", "fp16"}
    assert {path.name for path in files} - kept == {
        *("README.md", "calibration.json", "config.json", "model.safetensors", "policy.json"),
        *("recording.npy", "tokenizer.json", "tokenizer_config.json", "trained.npz"),
        *("table.json", "table.npy"),
    }
    assert sum(path.stat().st_size for path in files) <= MAX_BYTES


def test_recording_gives_the_figures_of_the_card() -> None:
    recording = read_recording(FOLDER / RECORDING, (6, 2))
    assert recording.shape[1] == figures().data.rows


def test_model_and_tokenizer_load() -> None:
    model = MultiExitModel.load(FOLDER)
    assert model.exits == (1, 2, 3, 4, 5, 6)
    assert model.labels == ["negative", "positive"]
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    assert tokenizer.padding is None
    assert tokenizer.truncation is None


def test_stated_figures_reach_the_bar_and_are_on_the_card() -> None:
    assert exit_table(figures()) in (FOLDER / "README.md").read_text("utf-8")
    last = figures().exits[-1].accuracy
    assert last >= 0.895


def test_policy_fits_the_model() -> None:
    config = json.loads((FOLDER / "config.json").read_text("utf-8"))
    policy().check(two_labels(config["offramp"]["exits"]))
    assert policy() == profiles_policy()


@pytest.mark.skipif(not DEV.is_file(), reason="needs ../shared/data/sst2, which is not shipped")
def test_dev_set_is_answered_as_well_as_stated() -> None:
    """The recording has the stated figures, and the model gives the recording's first logits."""
    model = MultiExitModel.load(FOLDER)
    texts, labels = inputs(read_dataset(DEV, "single_label", model.labels).examples)
    stored = read_recording(FOLDER / RECORDING, (6, 2))
    for logits, stated in zip(stored, figures().exits, strict=True):
        found = score(model.traits, np.array(labels), logits)
        assert found["accuracy"] == pytest.approx(stated.accuracy, abs=1e-6)
    source = TorchSource(model, (FOLDER / TOKENIZER).read_text("utf-8"), max_tokens=128)
    again = recorded(source, texts[:NUM_RUN])
    np.testing.assert_allclose(again.logits, stored[:, :NUM_RUN], atol=0.02)
