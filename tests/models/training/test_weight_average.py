"""Averaged weights: which steps count, and what the run ends with."""

from collections.abc import Callable

import torch
from torch import nn

from models.data.encoding import EncodedRow
from models.multi_exit import MultiExitModel
from models.training.job import TrainConfig
from models.training.objective import Objective
from models.training.recipes import RECIPES
from models.training.training_run import TrainingRun

Rows = Callable[..., list[EncodedRow]]
Model = Callable[..., MultiExitModel]


def weight_of(model: nn.Module) -> torch.Tensor:
    return next(model.parameters()).detach().clone()


def test_run_ends_with_the_mean_of_every_few_steps_and_the_last(
    make_model: Model, make_rows: Rows
) -> None:
    def weights_by_step(average_every: int | None) -> dict[int, torch.Tensor]:
        model = make_model()
        config = TrainConfig(epochs=1, lr=1e-2, batch_size=2, average_every=average_every)
        run = TrainingRun(model, make_rows(22), RECIPES["joint"](model, Objective()), config)
        found = {}
        while not run.finished:
            run.step()
            found[run.steps_done] = weight_of(model)
        return found

    plain, averaged = weights_by_step(None), weights_by_step(4)
    assert max(plain) == 11
    torch.testing.assert_close(averaged[10], plain[10])
    torch.testing.assert_close(averaged[11], (plain[4] + plain[8] + plain[11]) / 3)


def test_first_fifth_of_a_stage_does_not_count(make_model: Model, make_rows: Rows) -> None:
    model = make_model()
    config = TrainConfig(epochs=1, batch_size=2, average_every=1)
    run = TrainingRun(model, make_rows(20), RECIPES["joint"](model, Objective()), config)
    for _ in range(4):
        run.step()
    assert run.state()["average"]["n_averaged"] == 3
