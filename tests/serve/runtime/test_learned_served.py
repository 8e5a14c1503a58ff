"""Exits that learn their own error, on their whole way: certified and served."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rich.console import Console

from export import bundle as bundles
from models.data.notes import DataNote
from models.multi_exit import MultiExitModel
from models.quality.calibrate import CalibrationJob, calibrate
from models.training.job import ModelChoice, TrainConfig, TrainJob
from models.training.objective import Objective
from models.training.train import train
from serve.bundle.loader import load_bundle
from serve.rules.traits import Task
from tests.serve.support.live_server import serving_bundles
from tests.support.tiny import tiny_model, tiny_tokenizer
from tests.support.wordpiece import save_tokenizer

QUIET = Console(quiet=True)


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """Return the folder of a tiny encoder."""
    folder = tmp_path / "encoder"
    tiny_model().encoder.save_pretrained(folder)
    save_tokenizer(tiny_tokenizer(), folder)
    return folder


def record(task: Task, draw: random.Random) -> dict[str, object]:
    """The second word tells whether the first one decides the answer, or chance does."""
    first, decides = draw.random() < 0.5, draw.random() < 0.5
    answer = first if decides else draw.random() < 0.5
    gold = {"score": 2.0 * answer - 1} if task == "regression" else {"label": str(int(answer))}
    return {"text": f"w{1 + first} w{3 + decides} w{draw.randrange(5, 190)}", **gold}


def written(path: Path, task: Task, num_rows: int, unlike: str = "") -> Path:
    """Write records; none has a text of a training file."""
    draw, rows = random.Random(path.name), list[str]()
    while len(rows) < num_rows:
        row = record(task, draw)
        if f'"{row["text"]}"' not in unlike:
            rows.append(json.dumps(row))
    path.write_text("\n".join([*rows, ""]))
    return path


@pytest.mark.parametrize("task", ["single_label", "regression"])
def test_exits_learn_where_they_err_and_the_rule_is_certified_and_served(
    encoder: Path, tmp_path: Path, task: Task
) -> None:
    data = written(tmp_path / "train.jsonl", task, 160)
    other = written(tmp_path / "other.jsonl", task, 160, data.read_text())
    objective = Objective(learn_error=True, exit_weights="sum")
    choice = ModelChoice(encoder=encoder, objective=objective, max_tokens=16)
    config = TrainConfig(epochs=8, lr=3e-3, batch_size=16)
    folder, bundle = tmp_path / "model", tmp_path / "bundle"
    with pytest.warns(DataNote, match="holds no classifier"):
        assert train(TrainJob(choice, config, data, other, folder), QUIET)
    assert "--learn-error" in (folder / "README.md").read_text()
    texts = [f"w{1 + i % 2} w{decides} w{20 + i}" for decides in (3, 4) for i in range(12)]
    estimates = estimates_of(MultiExitModel.load(folder), texts)
    assert estimates[:-1, 12:].mean() < estimates[:-1, :12].mean(), "chance errs more often"
    bundles.write(bundles.plan(folder, ("fp32",)), bundle)
    (found,) = calibrate(CalibrationJob(bundle, (other,), delta=0.3), QUIET)
    assert load_bundle(bundle).ladder("fp32") == found.ladder
    sure = float(np.median(estimates[0]))
    with serving_bundles(bundle) as server:
        answer = server.answer(texts, exit={"rule": "learned", "threshold": sure})
    left = np.vstack([estimates[:-1] < sure, np.ones((1, len(texts)), bool)])
    assert [each["exit"]["layer"] for each in answer["results"]] == (left.argmax(0) + 1).tolist()


def estimates_of(model: MultiExitModel, texts: list[str]) -> NDArray[np.float32]:
    """Return (exits, texts) the errors that the heads expect of themselves."""
    ids = torch.tensor([tiny_tokenizer().encode(text).ids for text in texts])
    with torch.no_grad():
        outputs = model.exit_outputs(ids, torch.ones_like(ids), torch.zeros_like(ids))
    return np.stack([output.uncertainty for output in outputs])
