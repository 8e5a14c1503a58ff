"""Learning from a teacher: another classifier's answers on the training rows."""

import io
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from rich.console import Console
from torch.nn.functional import kl_div
from typer.testing import Result

from models.data.datasets import read_dataset
from models.data.encoding import EncodedRow, encode
from models.data.examples import Example
from models.multi_exit import MultiExitModel
from models.training.job import ModelChoice, TrainConfig, TrainJob
from models.training.losses import LOSSES
from models.training.objective import Objective
from models.training.recipes import FROZEN, RECIPES
from models.training.teacher import Teacher, TeacherAnswers
from models.training.training_run import TrainingRun
from serve.rules.signals import decisions
from serve.rules.traits import Task
from tests.models.conftest import WORDS, refusal, said_of
from tests.support.wordpiece import wordpiece

Model = Callable[..., MultiExitModel]
Train = Callable[..., Result]
LABELS = ["negative", "positive"]


@pytest.fixture
def make_teacher(make_model: Model, tmp_path: Path) -> Callable[..., Path]:
    """Return a factory of classifiers' folders, whose tokenizer numbers the words in reverse."""

    def make(name: str = "teacher", **traits: object) -> Path:
        folder = tmp_path / name
        make_model(seed=8, **traits).save(folder)
        wordpiece(WORDS[::-1]).save(str(folder / "tokenizer.json"))
        return folder

    return make


@pytest.fixture
def train(train: Train, make_teacher: Callable[..., Path]) -> Train:
    """Return a function that runs `offramp train` with a teacher."""
    return partial(train, teacher=make_teacher())


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != FROZEN])
def test_where_labels_are_noise_every_exit_learns_what_the_teacher_says(
    make_model: Model, make_rows: Callable[..., list[EncodedRow]], recipe: str
) -> None:
    rows, model = make_rows(48), make_model()
    right = np.array([row.label for row in rows])
    noisy = [EncodedRow(r.ids, r.types, i // 2 % 2) for i, r in enumerate(rows)]
    logits = torch.tensor([[4.0, 0.0] if label == 0 else [0.0, 4.0] for label in right])
    config = TrainConfig(epochs=15, lr=3e-3, batch_size=4)
    teacher = TeacherAnswers(logits, weight=5)
    run = TrainingRun(model, noisy, RECIPES[recipe](model, Objective()), config, teacher)
    while not run.finished:
        run.step()
    assert (said_of(model, rows).logits.argmax(axis=-1) == right).all()


@pytest.mark.parametrize("labels", [LABELS, LABELS[::-1], ["LABEL_0", "LABEL_1"]])
def test_teacher_with_its_own_tokenizer_answers_for_each_row_in_the_students_labels(
    make_teacher: Callable[..., Path],
    write_data: Callable[..., Path],
    sentiment_lines: list[str],
    tmp_path: Path,
    labels: list[str],
) -> None:
    folder, path = make_teacher(labels=labels), write_data("train.tsv", sentiment_lines, LABELS)
    job = TrainJob(ModelChoice(encoder=tmp_path), TrainConfig(), path, path, tmp_path)
    teacher = Teacher(folder, "single_label", LABELS)
    answers = teacher.logits(job, path, Console(file=io.StringIO()))
    examples = read_dataset(path, "single_label", LABELS).examples
    expected = said_of(MultiExitModel.load(folder), encode(folder, examples, 32)).logits[-1]
    if labels == LABELS[::-1]:
        expected = expected[:, ::-1]
    np.testing.assert_allclose(answers.numpy(), expected, atol=1e-5)
    assert np.ptp(expected, axis=0).min() > 1e-3, "the rows have different answers"


def test_a_run_ends_by_saying_how_far_full_depth_is_from_the_teacher(
    train: Train, make_teacher: Callable[..., Path], tmp_path: Path
) -> None:
    result = train(teacher=make_teacher("theirs", labels=LABELS[::-1]))
    assert result.exit_code == 0, result.output
    (dev,) = tmp_path.rglob("dev.tsv")
    examples = read_dataset(dev, "single_label", LABELS).examples
    theirs, own = (
        said_of(MultiExitModel.load(folder), encode(folder, examples, 32)).logits[-1]
        for folder in (tmp_path / "theirs", tmp_path / "out")
    )
    differing = 100 * np.mean(theirs[:, ::-1].argmax(axis=-1) != own.argmax(axis=-1))
    said = f"on {len(examples)} texts full depth gives another answer than theirs for "
    assert f"{said}{differing:.2f} % and has a score that is 0." in result.stderr


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_without_a_single_label_the_teachers_answers_are_the_labels(
    train: Train,
    make_teacher: Callable[..., Path],
    write_data: Callable[..., Path],
    sentiment_lines: list[str],
    tmp_path: Path,
    task: Task,
) -> None:
    texts = [line.split("\t")[1] for line in sentiment_lines[1:]]
    path, folder = (
        write_data("texts.txt", texts),
        make_teacher("large", task=task, labels=["bad", "good"]),
    )
    examples = [Example(text, None, 0) for text in texts]
    teacher, rows = MultiExitModel.load(folder), encode(folder, examples, 32)
    middle = np.median(said_of(teacher, rows).logits[-1], axis=0)
    teacher.head(-1).classifier.bias.data -= torch.tensor(middle)  # so that answers differ
    teacher.save(folder)
    with patch("models.training.train.TrainingRun", wraps=TrainingRun) as learned:
        result = train("--unlabelled", train=path, dev=path, teacher=folder)
    assert result.exit_code == 0, result.output

    answers = decisions(task, said_of(teacher, rows).logits[-1])
    assert set(answers.flat) == {0, 1}
    np.testing.assert_array_equal([row.label for row in learned.call_args.args[1]], answers)
    out = tmp_path / "out"
    assert MultiExitModel.load(out).labels == ["bad", "good"], "the data's labels.json has others"
    assert "agreement with large per exit %" in result.stderr
    card = (out / "README.md").read_text()
    assert "The labels are large's own answers, so that 100 % is the same answer" in card
    assert "No labels were read: the answers of the teacher `large` (sha256" in card
    assert not (out / "calibration.json").exists(), "no correct answer is known"


def test_temperature_divides_both_sides_and_keeps_the_size_of_the_gradient() -> None:
    student, said = torch.tensor([[1.0, -1.0]]), torch.tensor([[4.0, 0.0]])
    from_teacher = LOSSES["single_label"].from_teacher
    loss = TeacherAnswers(said, 0.5, 2.0).loss(from_teacher, student, torch.tensor([0]))
    softened = kl_div((student / 2).log_softmax(-1), (said / 2).softmax(-1), reduction="batchmean")
    torch.testing.assert_close(loss, 0.5 * 4 * softened)


def test_resumed_run_reaches_the_same_weights_without_asking_the_teacher_again(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train(out=tmp_path / "whole").exit_code == 0
    step = TrainingRun.step

    def stopped(run: TrainingRun) -> float:
        if run.steps_done == 2:
            raise KeyboardInterrupt
        return step(run)

    monkeypatch.setattr("models.training.loop.CHECKPOINT_EVERY_STEPS", 1)
    monkeypatch.setattr(TrainingRun, "step", stopped)
    assert train().exit_code != 0
    left = {path.suffix for path in (tmp_path / "out").iterdir()}
    assert left == {".ckpt", ".npy"}
    monkeypatch.setattr(TrainingRun, "step", step)
    compute = Teacher._compute

    def of_dev(teacher: Teacher, job: TrainJob, path: Path, console: Console) -> np.ndarray:
        assert path == job.dev, "the teacher was asked again"
        return compute(teacher, job, path, console)

    monkeypatch.setattr(Teacher, "_compute", of_dev)
    result = train("--resume")
    assert result.exit_code == 0, result.output
    whole, resumed = (tmp_path / name for name in ("whole", "out"))
    name = "model.safetensors"
    assert (resumed / name).read_bytes() == (whole / name).read_bytes()
    files = {path.name for path in resumed.iterdir()}
    assert files == {path.name for path in whole.iterdir()}
    assert not any(name.startswith("teacher") for name in files)


def test_run_is_not_resumed_with_another_teacher(
    train: Train, make_teacher: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("models.training.loop.CHECKPOINT_EVERY_STEPS", 1)
        patch.setattr("models.training.loop._evaluation", lambda *_: 1 / 0)
        train()
    other = make_teacher("other", exits=(3,))
    message = refusal(train("--resume", teacher=other))
    assert "is of a run with other settings or data" in message


def test_card_names_teacher_and_its_hash(train: Train, tmp_path: Path) -> None:
    result = train(teacher_weight=2, temperature=3)
    assert re.search(r"teacher: accuracy \d+\.\d % on the training rows", result.output)
    card = (tmp_path / "out" / "README.md").read_text()
    sha = Teacher(tmp_path / "teacher", "single_label", LABELS).sha256
    assert f"the teacher `teacher` (sha256 of weights and tokenizer `{sha[:12]}...`)" in card
    assert f"--teacher {tmp_path}/teacher --teacher-weight 2.0 --temperature 3.0 " in card


@pytest.mark.parametrize(
    ("traits", "message"),
    [
        (
            {"labels": ("bad", "good")},
            "its labels are bad, good; the student's are negative, positive. A teacher must have",
        ),
        (
            {"labels": ("LABEL_0", "LABEL_1", "LABEL_2")},
            "its labels are LABEL_0, LABEL_1, LABEL_2; the student's are negative, positive",
        ),
        ({"task": "multi_label"}, "its task is multi_label, the student's is single_label"),
    ],
)
def test_teacher_that_answers_something_else_is_refused(
    train: Train, make_teacher: Callable[..., Path], traits: dict[str, object], message: str
) -> None:
    assert message in refusal(train(teacher=make_teacher(**traits)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"out": "teacher"}, "is the teacher's folder, which would be overwritten"),
        ({"teacher": "data"}, "data holds no model: config.json is missing"),
        ({"recipe": FROZEN}, "--unlabelled: without labels --classifier teaches; leave --teacher"),
        ({"teacher_weight": 0}, "teacher_weight: must be greater than 0"),
        ({"temperature": "inf"}, "temperature: must be a finite number"),
        ({"distill": "inf"}, "distill: must be a finite number"),
        ({"lr": "inf"}, "lr: must be a finite number"),
    ],
)
def test_unusable_option_is_refused_in_one_sentence(
    train: Train,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, object],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refusal(train("--unlabelled", **changed))


@pytest.mark.parametrize("flags", [[], ["--unlabelled"]])
def test_teacher_is_refused_for_token_classification(
    train: Train,
    make_teacher: Callable[..., Path],
    write_data: Callable[..., Path],
    flags: list[str],
) -> None:
    data = write_data("tags.conll", ["good\tnegative", "bad\tpositive"])
    tagger = make_teacher("tagger", task="token")
    message = refusal(train(*flags, train=data, dev=data, teacher=tagger))
    assert "--teacher is for whole texts; in token classification" in message
