"""Training runs: determinism, resuming, schedule, parameter groups, averages, checkpoints."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from models.data.alignment import IGNORED
from models.data.encoding import EncodedRow
from models.errors import TrainingFailed
from models.multi_exit import MultiExitModel
from models.quality.scores import exit_figures
from models.training.checkpoint import Checkpoint
from models.training.error_targets import share_estimate
from models.training.job import TrainConfig
from models.training.objective import Objective
from models.training.optimizer import parameter_groups, rate_factor
from models.training.recipes import FROZEN, RECIPES, freeze_all_but
from models.training.training_run import TrainingRun
from serve.rules.traits import Task
from tests.models.conftest import said_of

Rows = Callable[..., list[EncodedRow]]
Model = Callable[..., MultiExitModel]

CONFIG = TrainConfig(epochs=2, lr=1e-3, batch_size=4, seed=5)


def start(
    model: MultiExitModel, rows: list[EncodedRow], recipe: str, config: TrainConfig = CONFIG
) -> TrainingRun:
    return TrainingRun(model, rows, RECIPES[recipe](model, Objective()), config)


def finish(run: TrainingRun) -> dict[str, torch.Tensor]:
    while not run.finished:
        run.step()
    return run.model.state_dict()


def differing(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> list[str]:
    return [name for name in one if not one[name].equal(other[name])]


@pytest.mark.parametrize(
    ("recipe", "stop_after", "options"),
    [
        ("joint", 1, {}),
        ("joint", 6, {"bf16": True}),
        ("joint", 8, {"average_every": 2}),
        ("two-stage", 12, {}),
        ("two-stage", 15, {"average_every": 2}),
        ("mixed", 14, {"bf16": True}),
        ("alternating", 3, {}),
        ("gradient-equilibrium", 5, {"average_every": 2}),
        ("grouped", 3, {}),
    ],
)
def test_resumed_run_reaches_the_weights_of_an_uninterrupted_one(
    make_model: Model,
    make_rows: Rows,
    tmp_path: Path,
    recipe: str,
    stop_after: int,
    options: dict[str, object],
) -> None:
    config = CONFIG.model_copy(update=options)
    whole = finish(start(make_model(), make_rows(), recipe, config))
    stopped = start(make_model(), make_rows(), recipe, config)
    for _ in range(stop_after):
        stopped.step()
    checkpoint = Checkpoint(tmp_path / "run.ckpt", "fingerprint")
    checkpoint.save(stopped.state())
    torch.manual_seed(99)
    resumed = start(make_model(seed=7), make_rows(), recipe, config)
    resumed.restore(checkpoint.load())
    assert resumed.steps_done == stop_after
    assert differing(finish(resumed), whole) == []


def test_the_one_estimate_of_errors_stays_one_through_average_and_resumption(
    make_model: Model, make_rows: Rows
) -> None:
    config = CONFIG.model_copy(update={"average_every": 2})

    def estimating() -> TrainingRun:
        model = make_model(uncertainty="pooler")
        share_estimate(model)
        stages = RECIPES["alternating"](model, Objective(learn_error=True))
        return TrainingRun(model, make_rows(), stages, config)

    whole, stopped = finish(estimating()), estimating()
    before = stopped.model.head(0).uncertainty.weight.clone()
    for _ in range(5):
        stopped.step()
    state, resumed = stopped.state(), estimating()
    resumed.restore(state)
    found = finish(resumed)
    assert differing(found, whole) == []
    first, *others = (found[f"heads.{i}.uncertainty.weight"] for i in range(3))
    assert all(first.equal(other) for other in others)
    assert not first.equal(before)


def test_same_seed_gives_the_same_weights_and_another_seed_others(
    make_model: Model, make_rows: Rows
) -> None:
    once = finish(start(make_model(), make_rows(), "joint"))
    model = make_model()
    torch.rand(3)
    again = finish(start(model, make_rows(), "joint"))
    other = CONFIG.model_copy(update={"seed": 6})
    assert differing(once, again) == []
    assert differing(once, finish(start(make_model(), make_rows(), "joint", other))) != []


# Recipe frozen starts from a classifier and has its own tests.
@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != FROZEN])
def test_training_teaches_every_exit_a_learnable_task(
    make_model: Model, make_rows: Rows, recipe: str
) -> None:
    rows, model = make_rows(48), make_model()
    finish(start(model, rows, recipe, CONFIG.model_copy(update={"epochs": 15, "lr": 3e-3})))
    found = said_of(model, rows)
    assert (found.logits.argmax(axis=-1) == found.gold).all()


def tagged(row: EncodedRow) -> EncodedRow:
    """Tag the second token, which decides the label, with the label; other words have tag 0."""
    fillers = len(row.ids) - 3
    tags = [IGNORED, 1 + row.label, *[0] * fillers, IGNORED]
    return replace(row, label=tags)


@pytest.mark.parametrize(
    ("task", "labels", "change", "epochs"),
    [
        ("token", ("O", "B-bad", "B-good"), tagged, 10),
        ("regression", ("score",), lambda row: replace(row, label=4.0 * row.label - 1), 20),
        (
            "multi_label",
            ("good", "long"),
            lambda row: replace(row, label=(float(row.label), float(len(row.ids) > 5))),
            40,
        ),
    ],
)
def test_training_teaches_every_exit_the_other_tasks(
    make_model: Model,
    make_rows: Rows,
    task: Task,
    labels: tuple[str, ...],
    change: Callable[[EncodedRow], EncodedRow],
    epochs: int,
) -> None:
    rows, model = [change(row) for row in make_rows(48)], make_model(task=task, labels=labels)
    finish(start(model, rows, "joint", CONFIG.model_copy(update={"epochs": epochs, "lr": 3e-3})))
    metric = {"token": "entity_f1", "regression": "pearson", "multi_label": "micro_f1"}[task]
    found = said_of(model, rows)
    figures = exit_figures(found)
    assert figures[-1].metrics[metric] > 0.95
    if task == "token":
        assert all(each.metrics[metric] == 1 for each in figures)
    if task == "regression":
        assert np.abs(found.logits[:, :, 0] - found.gold).max() < 0.5


def test_steps_count_epochs_stages_and_batches(make_model: Model, make_rows: Rows) -> None:
    assert start(make_model(), make_rows(24), "joint").num_steps == 2 * 6
    assert start(make_model(), make_rows(25), "two-stage").num_steps == 2 * 2 * 7


def test_rate_rises_over_six_percent_and_falls_to_nothing() -> None:
    shares = [rate_factor(step, 100) for step in range(100)]
    assert shares[0] == pytest.approx(1 / 6)
    assert max(shares) == shares[5] == 1
    assert shares[5:] == sorted(shares[5:], reverse=True)
    assert shares[99] == pytest.approx(1 / 94)
    assert rate_factor(0, 1) == 1


def test_first_step_moves_encoder_and_heads_by_their_warm_up_rates(
    make_model: Model, make_rows: Rows
) -> None:
    model = make_model()
    config = TrainConfig(epochs=25, lr=1e-3, head_lr_factor=3, weight_decay=0, batch_size=6)
    run = start(model, make_rows(), "joint", config)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    run.step()
    moved = {n: (v - before[n]).abs().max().item() for n, v in model.state_dict().items()}
    # Adam's first step is the rate itself: a sixth of its peak, of 100 steps.
    encoder = max(move for name, move in moved.items() if name.startswith("encoder"))
    assert encoder == pytest.approx(1e-3 / 6, rel=1e-2)
    assert moved["heads.2.classifier.weight"] == pytest.approx(3e-3 / 6, rel=1e-2)


def test_heads_have_their_own_rate_and_vectors_do_not_decay(make_model: Model) -> None:
    model = make_model()
    groups = parameter_groups(model, weight_decay=0.1, head_lr_factor=3)
    assert [(g["factor"], g["weight_decay"]) for g in groups] == [
        (1, 0.1), (1, 0), (3, 0.1), (3, 0)
    ]  # fmt: skip
    assert sum(len(g["params"]) for g in groups) == len(list(model.parameters()))
    assert all(p.ndim > 1 for p in groups[0]["params"] + groups[2]["params"])
    freeze_all_but(model, [model.heads[0]])
    assert [g["factor"] for g in parameter_groups(model, 0.1, 3)] == [3, 3]
    assert not any(p.requires_grad for p in model.encoder.parameters())


def test_checkpoint_is_of_one_run_and_survives_a_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Checkpoint(tmp_path / "run.ckpt", "one")
    checkpoint.save({"steps_done": 3})
    with pytest.raises(TrainingFailed, match="is of a run with other settings or data"):
        Checkpoint(tmp_path / "run.ckpt", "other").load()

    def broken(value: object, file: object) -> None:
        raise error

    monkeypatch.setattr(torch, "save", broken)
    for error in (OSError("no space left"), RuntimeError("unexpected pos")):
        with pytest.raises(TrainingFailed, match=f"cannot be written .{error}.; is the disk full"):
            checkpoint.save({"steps_done": 4})
    monkeypatch.undo()
    assert checkpoint.load() == {"steps_done": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["run.ckpt"]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9])
def test_a_checkpoint_that_is_cut_off_is_told(tmp_path: Path, share: float) -> None:
    checkpoint = Checkpoint(tmp_path / "run.ckpt", "one")
    checkpoint.save({"steps_done": 3})
    content = checkpoint.path.read_bytes()
    checkpoint.path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(TrainingFailed, match=r"cannot be read .*: delete it to start anew"):
        checkpoint.load()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_run_on_a_gpu_resumes_to_the_same_weights(make_model: Model, make_rows: Rows) -> None:
    whole = finish(start(make_model().cuda(), make_rows(), "joint"))
    stopped = start(make_model().cuda(), make_rows(), "joint")
    for _ in range(5):
        stopped.step()
    state = copy.deepcopy(stopped.state())
    resumed = start(make_model(seed=7).cuda(), make_rows(), "joint")
    resumed.restore(state)
    for name, value in finish(resumed).items():
        torch.testing.assert_close(value, whole[name], atol=1e-5, rtol=0)


def test_run_ends_with_the_mean_of_every_few_steps_and_the_last(
    make_model: Model, make_rows: Rows
) -> None:
    def weights_by_step(average_every: int | None) -> dict[int, torch.Tensor]:
        config = TrainConfig(epochs=1, lr=1e-2, batch_size=2, average_every=average_every)
        run, found = start(make_model(), make_rows(22), "joint", config), {}
        while not run.finished:
            run.step()
            found[run.steps_done] = next(run.model.parameters()).detach().clone()
        return found

    plain, averaged = weights_by_step(None), weights_by_step(4)
    assert max(plain) == 11
    torch.testing.assert_close(averaged[10], plain[10])
    torch.testing.assert_close(averaged[11], (plain[4] + plain[8] + plain[11]) / 3)


def test_first_fifth_of_a_stage_does_not_count_in_the_mean(
    make_model: Model, make_rows: Rows
) -> None:
    config = TrainConfig(epochs=1, batch_size=2, average_every=1)
    run = start(make_model(), make_rows(20), "joint", config)
    for _ in range(4):
        run.step()
    assert run.state()["average"]["n_averaged"] == 3
