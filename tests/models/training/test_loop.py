"""The training loop: when it evaluates, when it saves, how it stops."""

import io
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

from models.data.encoding import EncodedRow
from models.multi_exit import MultiExitModel
from models.training import loop as fit_module
from models.training.best_weights import BestWeights, score_of
from models.training.checkpoint import Checkpoint
from models.training.job import TrainConfig
from models.training.loop import fit
from models.training.objective import Objective
from models.training.recipes import RECIPES
from models.training.stop_request import stop_on_signal
from models.training.training_run import TrainingRun
from serve.bundle.calibration import ExitFigures


class Loop:
    """A run of six steps, two per epoch, and what the loop said."""

    def __init__(
        self, model: MultiExitModel, rows: list[EncodedRow], folder: Path, config: TrainConfig
    ) -> None:
        self.run = TrainingRun(model, rows, RECIPES["joint"](model, Objective()), config)
        self.checkpoint = Checkpoint(folder / "run.ckpt", "fingerprint")
        self.best = BestWeights()
        self.evaluated_at: list[int] = []
        self.weights: list[torch.Tensor] = []
        self.accuracies = iter([0.5, 0.7, 0.7, 0.6])
        self.said = io.StringIO()

    def evaluate(self) -> tuple[ExitFigures, ...]:
        self.evaluated_at.append(self.run.steps_done)
        self.weights.append(weight_of(self.run.model))
        return (ExitFigures(layer=3, accuracy=next(self.accuracies)),)

    def fit(self) -> bool:
        console = Console(file=self.said)
        return fit(self.run, self.best, self.checkpoint, self.evaluate, console)


def weight_of(model: nn.Module) -> torch.Tensor:
    return next(model.parameters()).detach().clone()


@pytest.fixture
def make_loop(
    make_model: Callable[..., MultiExitModel],
    make_rows: Callable[..., list[EncodedRow]],
    tmp_path: Path,
) -> Callable[..., Loop]:
    """Return a factory of loops; options go into the run's config."""

    def make(**options: object) -> Loop:
        config = TrainConfig(epochs=3, batch_size=4, lr=1e-2).model_copy(update=options)
        return Loop(make_model(), make_rows(8), tmp_path, config)

    return make


@pytest.fixture
def loop(make_loop: Callable[..., Loop]) -> Loop:
    return make_loop()


def test_every_epoch_or_every_few_steps_are_evaluated(make_loop: Callable[..., Loop]) -> None:
    loop = make_loop()
    assert loop.fit()
    assert re.search(r"training: 6 of 6, all exits, loss 0\.\d{3}, done in", loop.said.getvalue())
    assert loop.evaluated_at == [2, 4, 6]
    assert "step 4/6  loss 0." in loop.said.getvalue()
    assert "accuracy per exit %  3: 70.0" in loop.said.getvalue()
    loop = make_loop(evaluate_every=4)
    assert loop.fit()
    assert loop.evaluated_at == [4, 6], "the last step is always evaluated"


def test_the_last_weights_are_kept_or_on_request_the_first_best(
    make_loop: Callable[..., Loop],
) -> None:
    loop = make_loop()
    assert loop.fit()
    assert weight_of(loop.run.model).equal(loop.weights[2])
    assert "(best)" not in loop.said.getvalue()
    loop = make_loop(keep_best=True)
    assert loop.fit()
    assert weight_of(loop.run.model).equal(loop.weights[1])
    assert not loop.weights[1].equal(loop.weights[2])
    assert loop.said.getvalue().count("(best)") == 2
    # The best weights survive a checkpoint.
    restored = BestWeights()
    loop.checkpoint.save(loop.best.state())
    restored.restore(loop.checkpoint.load())
    assert restored.score == 0.7
    torch.nn.init.zeros_(next(loop.run.model.parameters()))
    restored.write_to(loop.run.model)
    assert weight_of(loop.run.model).equal(loop.weights[1])


def test_evaluation_measures_the_average_and_training_goes_on_from_the_last_weights(
    make_loop: Callable[..., Loop],
) -> None:
    plain = make_loop(evaluate_every=2)
    assert plain.fit()
    averaged = make_loop(evaluate_every=2, average_every=2)
    assert averaged.fit()
    first, second, third = plain.weights
    torch.testing.assert_close(averaged.weights[1], (first + second) / 2)
    torch.testing.assert_close(averaged.weights[2], (first + second + third) / 3)


def test_score_weighs_the_metric_of_the_task_by_depth() -> None:
    figures = [ExitFigures(layer=n, accuracy=n / 8, metrics={"f1": n / 10}) for n in (2, 4)]
    assert score_of(figures) == pytest.approx((0.25 + 2 * 0.5) / 3)
    best = BestWeights("f1")
    assert best.offer(figures, torch.nn.Linear(1, 1))
    assert best.score == pytest.approx((0.2 + 2 * 0.4) / 3)


def test_checkpoints_are_written_on_the_way_and_at_the_end(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    save = loop.checkpoint.save
    monkeypatch.setattr(fit_module, "CHECKPOINT_EVERY_STEPS", 5)
    monkeypatch.setattr(
        loop.checkpoint, "save", lambda state: (saved.append(state["steps_done"]), save(state))
    )
    assert loop.fit()
    assert saved == [5, 6]
    assert loop.checkpoint.load()["steps_done"] == 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_is_heard_at_once_and_stops_after_the_step_with_a_checkpoint(
    loop: Loop, number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    step = loop.run.step

    def interrupted_step() -> float:
        if loop.run.steps_done == 2:
            os.kill(os.getpid(), number)
            assert "stopping after this step" in capfd.readouterr().err
        return step()

    loop.run.step = interrupted_step  # type: ignore[method-assign]
    assert not loop.fit()
    assert loop.checkpoint.load()["steps_done"] == 3


@pytest.fixture
def _usual_ctrl_c() -> Iterator[None]:
    """Where a shell's background job runs the tests, SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_usual_ctrl_c")
def test_second_ctrl_c_acts_as_usual_and_handlers_are_restored_at_the_end() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signal() as stop:
        assert signal.getsignal(signal.SIGTERM) != before
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with stop_on_signal():
        pass
    assert signal.getsignal(signal.SIGTERM) == before
