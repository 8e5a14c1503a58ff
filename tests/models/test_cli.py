"""`offramp train` and `offramp evaluate` from the command line."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import Result

from models.multi_exit import MultiExitModel
from models.profiles import profiles_policy
from models.training import train as train_module
from models.training.recipes import FROZEN, RECIPES
from models.training.training_run import TrainingRun
from serve.bundle.calibration import Calibration
from serve.bundle.recording import read_recording
from serve.policy.document import Policy
from serve.rules.traits import Traits
from tests.models.conftest import offramp, refusal

Write = Callable[..., Path]
Train = Callable[..., Result]


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


# Recipe frozen starts from a classifier and has its own tests.
@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != FROZEN])
def test_training_leaves_a_measured_model_folder(train: Train, tmp_path: Path, recipe: str) -> None:
    result = train(recipe=recipe, dtype="fp16")
    assert result.exit_code == 0, result.output
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {
        *("README.md", "calibration.json", "config.json", "model.safetensors", "policy.json"),
        *("recording.npy", "tokenizer.json", "tokenizer_config.json", "trained.npz"),
        *("table.json", "table.npy"),
    }
    assert MultiExitModel.load(out).labels == ["negative", "positive"]
    calibration = Calibration.model_validate_json((out / "calibration.json").read_text())
    assert calibration.variants["fp32"].data.name == "data/dev.tsv"
    assert Policy.model_validate_json((out / "policy.json").read_text()) == profiles_policy()
    assert result.output.rstrip().endswith("with texts that the training has not used")
    assert "`offramp calibrate BUNDLE --data FILE`" in result.output
    assert {w.dtype for w in load_file(out / "model.safetensors").values()} == {torch.float16}
    assert "accuracy per exit %" in result.output
    assert "task single_label, labels (2): 'negative', 'positive'\n" in result.output


WORDS = ["good", "bad", "fine", "dull"] * 3
TASKS = {
    "multi_label": (
        ["labels\ttext", *(f"{['any', 'any|good'][i % 2]}\tfilm {w}" for i, w in enumerate(WORDS))],
        ("any", "good"),
        "micro_f1",
    ),
    "regression": (
        ["score\ttext_a\ttext_b", *(f"{i % 4}.5\t{w}\tthe {w}" for i, w in enumerate(WORDS))],
        ("score",),
        "pearson",
    ),
    "token": (
        ["token\ttag", *(f"film\tO\n{w}\tB-word\n" for w in WORDS)],
        ("O", "B-word"),
        "entity_f1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_detected_task_is_trained_measured_and_written_down(
    train: Train, write_data: Write, tmp_path: Path, task: str
) -> None:
    lines, labels, metric = TASKS[task]
    (tmp_path / "data" / "labels.json").unlink()
    data = write_data("task.tsv", lines)
    result = train("--keep-best", train=data, dev=data)
    assert result.exit_code == 0, result.output
    assert f"{metric} per exit %" in result.output
    out = tmp_path / "out"
    model = MultiExitModel.load(out)
    assert model.traits == Traits((1, 2, 3), labels, task)
    calibration = Calibration.model_validate_json((out / "calibration.json").read_text())
    figures = calibration.variants["fp32"]
    assert figures.metric == metric
    assert all(metric in exit_.metrics for exit_ in figures.exits)
    Policy.model_validate_json((out / "policy.json").read_text()).check(model.traits)
    assert (out / "recording.npy").exists() == (task != "token")
    assert (out / "table.npy").exists() == (task == "multi_label")
    if task != "token":
        read_recording(out / "recording.npy", (3, len(labels)))
    expected = f"Task `{task}`, recipe `joint`, 1 epochs per stage over 12 rows"
    assert expected in (out / "README.md").read_text()


def test_without_a_table_none_is_left_from_an_earlier_training(
    train: Train, tmp_path: Path
) -> None:
    assert "table: " in train().output
    assert train("--no-table").exit_code == 0
    assert not list((tmp_path / "out").glob("table.*"))
    assert " --no-table " in (tmp_path / "out" / "README.md").read_text()


def test_card_holds_the_command_that_trains_the_same_weights_again(
    train: Train, tmp_path: Path
) -> None:
    options = {"recipe": "two-stage", "exits": "1,3", "pooling": "first", "distill": 0.5}
    train("--no-bf16", "--keep-best", evaluate_every=2, dtype="fp16", **options)
    card = (tmp_path / "out" / "README.md").read_text()
    (line,) = [line for line in card.splitlines() if line.startswith("offramp train")]
    again = shlex.split(line.replace(f"--out {tmp_path}/out", f"--out {tmp_path}/again"))
    result = offramp(*again[1:])
    assert result.exit_code == 0, result.output
    assert weights(tmp_path / "again") == weights(tmp_path / "out")


def test_named_columns_are_trained_on_measured_and_written_into_the_command(
    train: Train, write_data: Write, sentiment_lines: list[str], tmp_path: Path
) -> None:
    rows = [line.split("\t") for line in sentiment_lines[1:]]
    lines = ["Answer,Stars,Question,by", *(f"{text},{label},is it,me" for label, text in rows)]
    data = write_data("all.csv", lines)
    assert "none is known to hold labels" in refusal(train(train=data, dev=data))
    named = {"text_columns": "Question,Answer", "label_column": "Stars"}
    result = train(train=data, dev=data, **named)
    assert result.exit_code == 0, result.output
    card = (tmp_path / "out" / "README.md").read_text()
    assert "--text-columns Question,Answer --label-column Stars" in card
    report = offramp("evaluate", tmp_path / "out", data=data, out=tmp_path / "report", **named)
    assert report.exit_code == 0, report.output


def test_what_is_left_out_of_the_data_is_told_once(
    train: Train, write_data: Write, sentiment_lines: list[str]
) -> None:
    header, *rows = sentiment_lines
    data = write_data("gold.tsv", [header.replace("label", "gold_label"), "-\tso", *rows])
    result = train(train=data)
    assert result.exit_code == 0, result.output
    assert result.stderr.count(f"note: {data}: rows left out because gold_label is -: 1\n") == 1


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that makes the process receive SIGINT once, during a step."""

    def arrange(num_steps: int) -> None:
        step = TrainingRun.step

        def interrupted(run: TrainingRun) -> float:
            if run.steps_done == num_steps - 1:
                monkeypatch.setattr(TrainingRun, "step", step)
                os.kill(os.getpid(), signal.SIGINT)
            return step(run)

        monkeypatch.setattr(TrainingRun, "step", interrupted)

    return arrange


@pytest.mark.parametrize(
    ("flags", "options", "num_steps"),
    [
        ([], {}, 2),
        # At this rate every evaluation is at chance: the best one is before the stop.
        (["--keep-best"], {"evaluate_every": 1, "epochs": 3, "lr": 0.5}, 7),
    ],
)
def test_stopped_training_resumes_to_the_same_weights(
    train: Train,
    stop_after: Callable[[int], None],
    tmp_path: Path,
    flags: list[str],
    options: dict[str, object],
    num_steps: int,
) -> None:
    assert train(*flags, out=tmp_path / "whole", **options).exit_code == 0
    stop_after(num_steps)
    stopped = train(*flags, **options)
    assert stopped.exit_code != 0
    assert "the same command with --resume goes on" in stopped.output
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["training.ckpt"]
    assert train(*flags, "--resume", **options).exit_code == 0
    assert not (tmp_path / "out" / "training.ckpt").exists()
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")


def test_unfinished_run_is_neither_overwritten_nor_mixed_with_another(
    train: Train,
    stop_after: Callable[[int], None],
    write_data: Write,
    sentiment_lines: list[str],
) -> None:
    assert "there is nothing to resume" in refusal(train("--resume"))
    stop_after(2)
    train()
    assert "is of an unfinished run: go on with it by --resume" in refusal(train())
    shorter = write_data("other.tsv", sentiment_lines[:-1])
    for changed in (
        *({"lr": 2e-3}, {"train": shorter}, {"dev": shorter}, {"exits": "1,3"}),
        *({"exit_weights": "sum"}, {"distill": 1}, {"layers": 2}),
    ):
        message = refusal(train("--resume", **changed))
        assert "is of a run with other settings or data" in message
    assert "is of a run with other settings" in refusal(train("--resume", "--learn-error"))
    write_data("train.tsv", sentiment_lines, labels=["positive", "negative"])
    assert "is of a run with other settings" in refusal(train("--resume"))


def test_run_that_fails_while_its_model_is_written_resumes_to_the_same_weights(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train(out=tmp_path / "whole").exit_code == 0
    with monkeypatch.context() as patch:
        patch.setattr(train_module, "measure_folder", Mock(side_effect=KeyboardInterrupt))
        assert train().exit_code != 0
    monkeypatch.setattr(TrainingRun, "step", lambda run: pytest.fail("a step was run"))
    assert train("--resume").exit_code == 0
    assert not (tmp_path / "out" / "training.ckpt").exists()
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")


def test_training_that_diverges_ends_with_a_reason(train: Train, tmp_path: Path) -> None:
    message = refusal(train(lr=1e30))
    assert re.search(r"the loss of step \d of \d is nan: the training has diverged; take", message)
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_seed_that_no_generator_takes_is_refused(train: Train) -> None:
    result = train(seed=2**64)
    assert result.exit_code == 2
    assert "Invalid value for '--seed'" in result.output


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"layers": 4}, "--layers 4: the encoder has 3 layers"),
        ({"layers": 2, "exits": "1,3"}, "the last exit must be the last layer, 2, not 3: use 1,2"),
        ({"layers": 2, "recipe": "two-stage"}, "recipe two-stage is about exits before the last"),
        ({"exits": 3, "distill": 1}, "--distill is about exits before the last"),
        ({"exits": 3, "exit_weights": "mean"}, "--exit-weights is about exits before the last"),
        (
            {"flags": ["--learn-error"], "exits": 3},
            "--learn-error is about exits before the last, and the model has one exit only",
        ),
        (
            {"flags": ["--unlabelled"]},
            "--unlabelled: recipe joint learns from labels; name a classifier whose answers",
        ),
        ({"diversity": 1}, "diversity: must be less than 1, not 1.0"),
        ({"diversity": 0.1, "recipe": "frozen"}, "--diversity: recipe frozen teaches the exits to"),
        ({"head": "attention", "pooling": "mean"}, "--pooling mean: attention heads read all"),
        (
            {"head": "attention", "flags": ["--learn-error"]},
            "--learn-error is for pooled heads, which have the features to estimate",
        ),
        ({"exits": "one"}, "--exits 'one': must be layers such as 2,4,6"),
        ({"exits": ""}, "--exits '': must be layers such as 2,4,6"),
        ({"temperature": 4, "distill": 1}, "--temperature is about learning from a teacher; name"),
        ({"teacher_weight": 2}, "--teacher-weight is about learning from a teacher; name one by"),
        ({"labels": "no,,yes"}, "'no,,yes' lists an empty name: write names with commas between"),
        ({"labels": ""}, "'' lists an empty name"),
        ({"text_columns": "text,"}, "'text,' lists an empty name"),
        ({"exit_weights": "sum", "recipe": "two-stage"}, "--exit-weights: recipe two-stage trains"),
        ({"lr": 0}, "lr: must be greater than 0, not 0.0"),
        ({"labels": "no"}, "at least two labels are needed, found no"),
        ({"task": "token"}, "train.tsv line 1: a table of texts; token classification needs"),
        ({"task": "regression", "labels": "a,b"}, "needs one name, not 2: a, b"),
        ({"max_tokens": 64}, "max_tokens 64: the encoder takes at most 32 tokens"),
        ({"out": "data/dev.tsv/model"}, "dev.tsv/model: cannot be written (Not a directory)"),
        ({"out": "encoder"}, "is the encoder's folder, which would be overwritten"),
        ({"encoder": "data"}, "data holds no model: config.json is missing"),
    ],
)
def test_unusable_option_is_refused_in_one_sentence_before_training(
    train: Train,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.setattr(TrainingRun, "step", lambda run: pytest.fail("a step was run"))
    monkeypatch.chdir(tmp_path)
    flags = changed.pop("flags", [])
    assert message in refusal(train(*flags, **changed))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_is_reported(train: Train) -> None:
    assert "--device cuda: this PyTorch finds no GPU" in refusal(train(device="cuda"))


def test_what_whole_texts_need_is_refused_for_token_classification(
    train: Train, write_data: Write
) -> None:
    data = write_data("tags.conll", ["good\tnegative", "bad\tpositive"])
    message = refusal(train("--learn-error", train=data, dev=data))
    assert "--learn-error is for whole texts" in message
    message = refusal(train(train=data, dev=data, diversity=0.1))
    assert "--diversity is for answers that are labels of a whole text" in message
    message = refusal(train(train=data, dev=data, head="attention"))
    assert "--head attention: in token classification every token has an answer" in message
    message = refusal(train(train=data, dev=data, pooling="mean"))
    assert "pooling mean: in token classification every token has an answer of its own" in message


def test_folder_that_is_no_encoder_is_named(
    train: Train, make_encoder: Callable[[], Path], tmp_path: Path
) -> None:
    (make_encoder() / "config.json").write_text("{}")
    assert str(tmp_path / "encoder") in refusal(train())


def test_importing_the_commands_does_not_import_torch() -> None:
    packages = ("training", "pretraining", "prediction", "elue")
    imports = ", ".join(["sys", "models.cli", *(f"models.{name}.cli" for name in packages)])
    code = f"import {imports}; assert not {{'torch', 'transformers'}} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-c", code], check=True)
