"""The command and the account of a run that a card holds."""

import hashlib
from pathlib import Path

import pytest

from models.multi_exit import HeadConfig
from models.training.job import ModelChoice, TrainConfig, TrainJob
from models.training.objective import Objective
from models.training.provenance import command, describe_run


@pytest.fixture
def job(tmp_path: Path) -> TrainJob:
    """A run whose files exist; options are at their defaults."""
    (tmp_path / "my data").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "my data" / name).write_text(name)
    return TrainJob(
        ModelChoice(encoder=Path("encoder")),
        TrainConfig(),
        tmp_path / "my data" / "train.tsv",
        tmp_path / "my data" / "dev.tsv",
        Path("out"),
    )


def test_command_names_files_and_leaves_defaults_out(job: TrainJob) -> None:
    assert command(job) == (
        f"offramp train --encoder encoder --train '{job.train}' --dev '{job.dev}' --out out "
        "--no-bf16 --dtype fp32"
    )


def test_command_has_every_option_that_was_changed(job: TrainJob) -> None:
    choice = ModelChoice(
        encoder=Path("e"),
        task="regression",
        labels=("how alike",),
        layers=6,
        exits=(2, 6),
        head=HeadConfig(pooling="first"),
        recipe="mixed",
        objective=Objective(distill=0.5, exit_weights="mean", learn_error=True, diversity=0.1),
        max_tokens=64,
    )
    config = TrainConfig(
        epochs=5, lr=1e-4, head_lr_factor=3, batch_size=8, seed=1, average_every=10,
        evaluate_every=5, keep_best=True, bf16=True,
    )  # fmt: skip
    changed = TrainJob(choice, config, job.train, job.dev, job.out, "fp16")
    assert command(changed).partition("--out out ")[2] == (
        "--task regression --recipe mixed --max-tokens 64 --distill 0.5 --exit-weights mean "
        "--learn-error --diversity 0.1 "
        "--labels 'how alike' --layers 6 --exits 2,6 --pooling first --epochs 5 --lr 0.0001 "
        "--head-lr-factor 3.0 --batch-size 8 --seed 1 --average-every 10 --evaluate-every 5 "
        "--keep-best --bf16 --dtype fp16"
    )


@pytest.mark.parametrize(
    ("recipe", "lr", "written"),
    [("joint", 1e-3, True), ("frozen", 2e-5, True), ("frozen", 1e-3, False)],
)
def test_a_learning_rate_is_written_unless_it_is_the_recipes_own(
    job: TrainJob, recipe: str, lr: float, written: bool
) -> None:
    choice = ModelChoice(encoder=Path("e"), recipe=recipe)
    changed = TrainJob(choice, TrainConfig(lr=lr), job.train, job.dev, job.out)
    assert (f" --lr {lr} " in command(changed)) == written


def test_account_names_the_data_by_their_hash(job: TrainJob) -> None:
    text = " ".join(describe_run(job, "single_label", 1234).split())
    sha = hashlib.sha256(b"train.tsv").hexdigest()[:12]
    assert f"over 1234 rows of `my data/train.tsv` (sha256 `{sha}...`)" in text
    assert "recipe `joint`, 3 epochs per stage" in text
