"""`offramp train` from the command line."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import typer
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

from models.cli import evaluate, train
from models.multi_exit import MultiExitModel
from models.training.recipes import FROZEN, RECIPES
from models.training.run import TrainingRun
from serve.bundle.calibration import Calibration
from serve.bundle.recording import read_recording
from serve.errors import OfframpError
from serve.policy.document import Policy
from serve.rules.traits import Traits
from tests.support.traits import two_labels

Write = Callable[..., Path]


@pytest.fixture
def offramp(
    make_encoder: Callable[[], Path], write_data: Write, sentiment_lines: list[str], tmp_path: Path
) -> Callable[..., Result]:
    """Return a function that runs `train` on tiny files; options may be added or replaced."""
    app = typer.Typer()
    app.command()(train)
    app.command()(evaluate)
    write_data("train.tsv", sentiment_lines, labels=["negative", "positive"])
    write_data("dev.tsv", sentiment_lines)
    options = {
        "--encoder": make_encoder(),
        "--train": tmp_path / "data" / "train.tsv",
        "--dev": tmp_path / "data" / "dev.tsv",
        "--out": tmp_path / "out",
        "--epochs": 1,
        "--lr": 1e-3,
        "--batch-size": 8,
        "--max-tokens": 32,
    }

    def run(*flags: str, **changed: object) -> Result:
        given = options | {f"--{name.replace('_', '-')}": v for name, v in changed.items()}
        pairs = [str(part) for pair in given.items() for part in pair]
        return CliRunner().invoke(app, ["train", *pairs, *flags])

    return run


def refusal(result: Result) -> str:
    """The sentence of an expected error, which `offramp` prints without a traceback."""
    assert isinstance(result.exception, OfframpError), result.output
    return str(result.exception)


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


# Recipe frozen starts from a classifier and has tests of its own.
@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != FROZEN])
def test_training_leaves_a_measured_model_folder(
    offramp: Callable[..., Result], tmp_path: Path, recipe: str
) -> None:
    result = offramp(recipe=recipe, dtype="fp16")
    assert result.exit_code == 0, result.output
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "calibration.json",
        "config.json",
        "model.safetensors",
        "policy.json",
        "recording.npy",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert MultiExitModel.load(out).labels == ["negative", "positive"]
    calibration = Calibration.model_validate_json((out / "calibration.json").read_text())
    assert calibration.variants["fp32"].data.name == "data/dev.tsv"
    Policy.model_validate_json((out / "policy.json").read_text()).check(two_labels((1, 2, 3)))
    assert {w.dtype for w in load_file(out / "model.safetensors").values()} == {torch.float16}
    assert "accuracy per exit %" in result.output


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
def test_task_that_the_data_tell_is_trained_measured_and_written_down(
    offramp: Callable[..., Result], write_data: Write, tmp_path: Path, task: str
) -> None:
    lines, labels, metric = TASKS[task]
    (tmp_path / "data" / "labels.json").unlink()
    data = write_data("task.tsv", lines)
    result = offramp("--keep-best", train=data, dev=data)
    assert result.exit_code == 0, result.output
    assert f"{metric} per exit %" in result.output
    out = tmp_path / "out"
    model = MultiExitModel.load(out)
    assert model.traits == Traits((1, 2, 3), labels, task)
    calibration = Calibration.model_validate_json((out / "calibration.json").read_text())
    figures = calibration.variants["fp32"]
    assert figures.metric == metric
    assert all(metric in point.metrics for point in (*figures.exits, *figures.operating_points))
    Policy.model_validate_json((out / "policy.json").read_text()).check(model.traits)
    assert (out / "recording.npy").exists() == (task != "token")
    if task != "token":
        read_recording(out / "recording.npy", (3, len(labels)))
    assert (
        f"Task `{task}`, recipe `joint`, 1 epochs per stage over 12 rows"
        in (out / "README.md").read_text()
    )


def test_card_holds_the_command_that_trains_the_same_weights_again(
    offramp: Callable[..., Result], tmp_path: Path
) -> None:
    flags = {"recipe": "two-stage", "exits": "1,3", "pooling": "first", "distill": 0.5}
    offramp("--no-bf16", "--keep-best", "--evaluate-every", "2", dtype="fp16", **flags)
    card = (tmp_path / "out" / "README.md").read_text()
    (line,) = [line for line in card.splitlines() if line.startswith("offramp train")]
    app = typer.Typer()
    app.command()(train)
    again = shlex.split(line.replace(f"--out {tmp_path}/out", f"--out {tmp_path}/again"))
    result = CliRunner().invoke(app, again[2:])
    assert result.exit_code == 0, result.output
    assert weights(tmp_path / "again") == weights(tmp_path / "out")


def test_evaluation_prints_every_figure_of_an_exit(
    offramp: Callable[..., Result], tmp_path: Path
) -> None:
    offramp()
    app = typer.Typer()
    app.command()(evaluate)
    dev = str(tmp_path / "data" / "dev.tsv")
    shown = CliRunner().invoke(app, [str(tmp_path / "out"), "--data", dev]).output
    assert re.fullmatch(r"(exit layer \d: accuracy \d+\.\d\d %, F1 \d+\.\d\d %\n){3}", shown), shown


def test_figures_are_those_of_the_saved_weights(
    offramp: Callable[..., Result], tmp_path: Path
) -> None:
    offramp(dtype="fp16", exits="1,3", pooling="first")
    out = tmp_path / "out"
    before = (out / "calibration.json").read_text()
    model = MultiExitModel.load(out)
    assert model.exits == (1, 3)
    assert model.exit_config.head.pooling == "first"
    (out / "calibration.json").unlink()
    app = typer.Typer()
    app.command()(evaluate)
    dev = str(tmp_path / "data" / "dev.tsv")
    assert CliRunner().invoke(app, [str(out), "--data", dev, "--max-tokens", "32"]).exit_code == 0
    assert (out / "calibration.json").read_text() == before


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that lets the user press Ctrl-C, once, during a step."""

    def arrange(num_steps: int) -> None:
        step = TrainingRun.step

        def interrupted(run: TrainingRun) -> float:
            if run.steps_done == num_steps - 1:
                monkeypatch.setattr(TrainingRun, "step", step)
                os.kill(os.getpid(), signal.SIGINT)
            return step(run)

        monkeypatch.setattr(TrainingRun, "step", interrupted)

    return arrange


def test_stopped_training_resumes_to_the_same_weights(
    offramp: Callable[..., Result], stop_after: Callable[[int], None], tmp_path: Path
) -> None:
    assert offramp(out=tmp_path / "whole").exit_code == 0
    stop_after(2)
    stopped = offramp()
    assert stopped.exit_code != 0
    assert "the same command with --resume goes on" in stopped.output
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["training.ckpt"]
    assert offramp("--resume").exit_code == 0
    assert not (tmp_path / "out" / "training.ckpt").exists()
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")


def test_best_weights_of_before_the_stop_are_remembered(
    offramp: Callable[..., Result], stop_after: Callable[[int], None], tmp_path: Path
) -> None:
    # The rate is so high that every evaluation is at chance: an early one stays the best.
    flags, options = ("--keep-best", "--evaluate-every", "1"), {"epochs": 3, "lr": 0.5}
    assert offramp(*flags, out=tmp_path / "whole", **options).exit_code == 0
    stop_after(7)
    offramp(*flags, **options)
    assert offramp(*flags, "--resume", **options).exit_code == 0
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")


def test_unfinished_run_is_neither_overwritten_nor_mixed_with_another(
    offramp: Callable[..., Result],
    stop_after: Callable[[int], None],
    write_data: Write,
    sentiment_lines: list[str],
) -> None:
    stop_after(2)
    offramp()
    assert "is of an unfinished run: go on with it by --resume" in refusal(offramp())
    shorter = write_data("other.tsv", sentiment_lines[:-1])
    for changed in ({"lr": 2e-3}, {"train": shorter}, {"dev": shorter}, {"exits": "1,3"}):
        said = refusal(offramp("--resume", **changed))
        assert "is of a run with other settings or data" in said


def test_resuming_without_a_checkpoint_is_told(offramp: Callable[..., Result]) -> None:
    assert "there is nothing to resume" in refusal(offramp("--resume"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"exits": "1,2"}, "the last exit must be the last layer, 3, not 2"),
        ({"exits": "one"}, "--exits 'one': must be layers such as 2,4,6"),
        ({"lr": 0}, "lr: must be greater than 0, not 0.0"),
        ({"labels": "no"}, "at least two labels are needed, found no"),
        ({"task": "token"}, "train.tsv line 1: a table of texts; token classification needs"),
        ({"task": "regression", "labels": "a,b"}, "needs one name, not 2: a, b"),
        ({"max_tokens": 64}, "max_tokens 64: the encoder takes at most 32 tokens"),
    ],
)
def test_unusable_option_is_told_in_one_sentence(
    offramp: Callable[..., Result], changed: dict[str, object], message: str
) -> None:
    assert message in refusal(offramp(**changed))


def no_training(run: TrainingRun) -> float:
    raise AssertionError("this was to be refused before any step")


def test_folder_that_cannot_be_written_is_told_before_training(
    offramp: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainingRun, "step", no_training)
    (tmp_path / "file").write_text("x")
    said = refusal(offramp(out=tmp_path / "file" / "model"))
    assert "file/model: cannot be written (Not a directory); choose another folder" in said


def test_encoder_is_not_overwritten(
    offramp: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainingRun, "step", no_training)
    assert "would be overwritten" in refusal(offramp(out=tmp_path / "encoder"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_that_is_not_there_is_told(offramp: Callable[..., Result]) -> None:
    assert "--device cuda: this PyTorch finds no GPU" in refusal(offramp(device="cuda"))


def test_pooling_is_refused_where_every_token_answers(
    offramp: Callable[..., Result], write_data: Write
) -> None:
    data = write_data("tags.conll", ["good\tnegative", "bad\tpositive"])
    said = refusal(offramp(train=data, dev=data, pooling="mean"))
    assert "pooling mean: in token classification every token has an answer of its own" in said


def test_bad_line_in_the_data_is_told_with_its_place(
    offramp: Callable[..., Result], write_data: Write
) -> None:
    path = write_data("broken.tsv", ["label\ttext_a", "1\tgood", "2\tgood"])
    said = refusal(offramp(train=path))
    assert "broken.tsv line 3: unknown label '2'; the labels are negative, positive" in said


def test_folder_that_is_no_encoder_is_told(
    offramp: Callable[..., Result], make_encoder: Callable[[], Path], tmp_path: Path
) -> None:
    (make_encoder() / "config.json").write_text("{}")
    assert str(tmp_path / "encoder") in refusal(offramp())


def test_evaluating_a_folder_without_a_model_is_told(write_data: Write, tmp_path: Path) -> None:
    data = write_data("dev.tsv", ["label\ttext", "1\tgood"])
    app = typer.Typer()
    app.command()(evaluate)
    result = CliRunner().invoke(app, [str(tmp_path), "--data", str(data)])
    assert "config.json is missing" in refusal(result)


def test_importing_the_commands_does_not_import_torch() -> None:
    code = "import sys, models.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
