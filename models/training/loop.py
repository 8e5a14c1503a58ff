"""The training loop: steps, progress, evaluation, checkpoints, stopping."""

import math
from collections.abc import Callable

from rich.console import Console

from models.errors import TrainingFailed
from models.progress import progress
from models.training.best_weights import BestWeights
from models.training.checkpoint import Checkpoint
from models.training.stop_request import stop_on_signal
from models.training.training_run import TrainingRun
from serve.bundle.calibration import ExitFigures

# A checkpoint costs about a second for 20 million parameters.
CHECKPOINT_EVERY_STEPS = 500
# The displayed loss is a moving average with this weight on the past.
LOSS_MEMORY = 0.98


def fit(
    run: TrainingRun,
    best: BestWeights,
    checkpoint: Checkpoint,
    evaluate: Callable[[], tuple[ExitFigures, ...]],
    console: Console,
    measured: str | None = None,
) -> bool:
    """Train until the run is finished, or until the user stops it.

    Args:
        run: fresh or restored.
        best: fresh or restored; its weights are written to the model at the end.
        checkpoint: written every `CHECKPOINT_EVERY_STEPS` steps, on a stop and at the end, so that
            a run that fails before its model is written need not be repeated.
        evaluate: measures the model; its figures are printed.
        console: for progress and figures.
        measured: what the figures are called; None for the metric's name.

    Returns:
        Whether the run is finished.

    Raises:
        TrainingFailed: the loss is no number any more.
    """
    with (
        stop_on_signal() as stop,
        progress(console, "training", run.num_steps, done=run.steps_done) as advance,
    ):
        loss = None
        while not run.finished and not stop.requested:
            stage = run.stage.name
            latest = _finite(run.step(), run)
            loss = latest if loss is None else LOSS_MEMORY * loss + (1 - LOSS_MEMORY) * latest
            advance(1, f"{stage}, loss {loss:.3f}")
            if run.steps_done % CHECKPOINT_EVERY_STEPS == 0:
                checkpoint.save(run.state() | {"best": best.state()})
            if run.evaluation_due:
                advance(0, "measuring")
                line = f"step {run.steps_done}/{run.num_steps}  loss {loss:.3f}"
                line += f"  {measured or best.metric} per exit %{_evaluation(run, best, evaluate)}"
                console.print(line, soft_wrap=True, highlight=False)
    checkpoint.save(run.state() | {"best": best.state()})
    if run.finished:
        best.write_to(run.model)
    return run.finished


def _finite(loss: float, run: TrainingRun) -> float:
    """Return the loss; the weights are useless from the step on at which it is no number."""
    if not math.isfinite(loss):
        raise TrainingFailed(
            f"the loss of step {run.steps_done} of {run.num_steps} is {loss}: the training has "
            "diverged; take a lower --lr, or labels that are smaller if they are large numbers"
        )
    return loss


def _evaluation(
    run: TrainingRun, best: BestWeights, evaluate: Callable[[], tuple[ExitFigures, ...]]
) -> str:
    with run.as_if_ending():
        figures = evaluate()
        kept = run.config.keep_best and run.in_last_stage and best.offer(figures, run.model)
    shares = "  ".join(f"{f.layer}: {100 * f.value(best.metric):.1f}" for f in figures)
    return f"  {shares}{'  (best)' if kept else ''}"
