"""A training run: one optimizer step at a time, stoppable and resumable between any two."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from models.data.batches import Batch, collate, shuffled_batches
from models.data.encoding import EncodedRow
from models.multi_exit import MultiExitModel
from models.training.averaging import WeightAverage
from models.training.optimization import parameter_groups, rate_share
from models.training.recipes import Loss, Stage, freeze_all_but

MAX_GRADIENT_NORM = 1.0
# Before this share of a stage the weights still move too far for a mean to make sense.
AVERAGE_FROM_SHARE = 0.2


class TrainConfig(BaseModel):
    """What decides the outcome of a run, besides the model and the data.

    Attributes:
        epochs: passes over the data, per stage.
        lr: peak learning rate; it rises over the first 6 % of a stage and falls to 0.
        head_lr_factor: the heads, which start from nothing, learn this much faster.
        weight_decay: AdamW's, on matrices only.
        average_every: a stage ends with the mean of the weights at every so many steps and
            at its last; None keeps the last.
        evaluate_every: steps between evaluations; None evaluates after each epoch.
        keep_best: the last stage ends with the weights of its best evaluation.
        bf16: run forward and backward in bfloat16, weights staying in float32.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: PositiveInt = 3
    lr: PositiveFloat = 2e-5
    head_lr_factor: PositiveFloat = 1.0
    weight_decay: NonNegativeFloat = 0.01
    batch_size: PositiveInt = 32
    seed: int = 42
    average_every: PositiveInt | None = None
    evaluate_every: PositiveInt | None = None
    keep_best: bool = False
    bf16: bool = False


class TrainingRun:
    """A model on its way through the stages of a recipe.

    Attributes:
        model: changed in place.
        config: as given.
        steps_done: optimizer steps so far, over all stages.
    """

    def __init__(
        self,
        model: MultiExitModel,
        rows: Sequence[EncodedRow],
        stages: Sequence[Stage],
        config: TrainConfig,
    ) -> None:
        self.model = model
        self.steps_done = 0
        self._rows = rows
        self._stages = stages
        self.config = config
        self._lengths = [len(row.ids) for row in rows]
        self._device = next(model.parameters()).device
        self._epoch_steps = len(shuffled_batches(self._lengths, config.batch_size, config.seed, 0))
        torch.manual_seed(config.seed)
        self._enter_stage()

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return len(self._stages) * self._stage_steps

    @property
    def finished(self) -> bool:
        """Whether no step is left."""
        return self.steps_done >= self.num_steps

    @property
    def evaluation_due(self) -> bool:
        """Whether the step before ended an epoch, or came to `evaluate_every`."""
        every = self.config.evaluate_every or self._epoch_steps
        return self.finished or self.steps_done % every == 0

    @property
    def in_last_stage(self) -> bool:
        """Whether the next step, or the one that finished the run, is of the last stage."""
        return self.stage is self._stages[-1]

    @property
    def stage(self) -> Stage:
        """The stage of the next step."""
        return self._stages[min(self.steps_done // self._stage_steps, len(self._stages) - 1)]

    def step(self) -> float:
        """Learn from the next batch; return its loss."""
        batch = self._next_batch()
        self.model.train()
        with self._precision():
            logits = self.stage.forward(self.model, batch)
        loss = self._loss([z.float() for z in logits], batch.labels)
        self._optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self._trained, MAX_GRADIENT_NORM)
        self._set_rate()
        self._optimizer.step()
        self._advance()
        return loss.item()

    @contextmanager
    def as_if_ending(self) -> Iterator[None]:
        """Give the model, inside the block, the weights it would have if the stage ended now."""
        before = WeightAverage()
        before.add(self.model)
        self._average.write_to(self.model)
        try:
            yield
        finally:
            before.write_to(self.model)

    def state(self) -> dict[str, Any]:
        """Return everything a fresh run needs to go on from here."""
        return {
            "steps_done": self.steps_done,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "average": self._average.state(),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state_all(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state` returned, to the weights it would have led to."""
        self.steps_done = state["steps_done"]
        self.model.load_state_dict(state["model"])
        self._enter_stage()
        self._optimizer.load_state_dict(state["optimizer"])
        self._average.restore(state["average"])
        torch.set_rng_state(state["rng"])
        torch.cuda.set_rng_state_all(state["cuda_rng"])

    @property
    def _stage_steps(self) -> int:
        return self.config.epochs * self._epoch_steps

    def _enter_stage(self) -> None:
        self._trained = freeze_all_but(self.model, self.stage.modules)
        groups = parameter_groups(self.model, self.config.weight_decay, self.config.head_lr_factor)
        self._optimizer = torch.optim.AdamW(groups, lr=self.config.lr, fused=True)
        self._average = WeightAverage()
        self._batches: list[list[int]] = []

    def _next_batch(self) -> Batch:
        epoch, index = divmod(self.steps_done, self._epoch_steps)
        if index == 0 or not self._batches:
            config = self.config
            self._batches = shuffled_batches(self._lengths, config.batch_size, config.seed, epoch)
        rows = [self._rows[i] for i in self._batches[index]]
        return collate(rows, self.model.config.pad_token_id or 0).to(self._device)

    @property
    def _loss(self) -> Loss:
        return self.stage.loss_at(self.steps_done % self._stage_steps)

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self.config.bf16)

    def _set_rate(self) -> None:
        share = rate_share(self.steps_done % self._stage_steps, self._stage_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = self.config.lr * group["factor"] * share

    def _advance(self) -> None:
        self.steps_done += 1
        step = self.steps_done % self._stage_steps
        every = self.config.average_every
        if every and (step == 0 or self._is_averaged(step, every)):
            self._average.add(self.model)
        if step == 0:
            self._average.write_to(self.model)
            self._enter_stage()

    def _is_averaged(self, step: int, every: int) -> bool:
        return step % every == 0 and step >= AVERAGE_FROM_SHARE * self._stage_steps
