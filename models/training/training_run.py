"""A training run: one optimizer step at a time, resumable between any two steps."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from models.data.batches import Batch, collate, shuffled_batches
from models.data.encoding import EncodedRow
from models.encoder_with_heads import EncoderWithHeads
from models.training.exits_loss import Said
from models.training.job import TrainConfig
from models.training.optimizer import parameter_groups, rate_factor
from models.training.recipes import Stage, freeze_all_but
from models.training.teacher import TeacherAnswers

MAX_GRADIENT_NORM = 1.0
# Weights from before this share of a stage are left out of the mean: they still change too much.
AVERAGE_FROM_SHARE = 0.2


class TrainingRun:
    """The training of one model through the stages of a recipe.

    Attributes:
        model: changed in place.
        config: as given.
        steps_done: optimizer steps so far, over all stages.
    """

    def __init__(
        self,
        model: EncoderWithHeads,
        rows: Sequence[EncodedRow],
        stages: Sequence[Stage],
        config: TrainConfig,
        teacher: TeacherAnswers | None = None,
    ) -> None:
        self.model = model
        self.steps_done = 0
        self._rows = rows
        self._teacher = teacher
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
        """Whether the previous step ended an epoch, or `evaluate_every` steps."""
        every = self.config.evaluate_every or self._epoch_steps
        return self.finished or self.steps_done % every == 0

    @property
    def in_last_stage(self) -> bool:
        """Whether the next step, or the final one of a finished run, is in the last stage."""
        return self.stage is self._stages[-1]

    @property
    def stage(self) -> Stage:
        """The stage of the next step."""
        return self._stages[min(self.steps_done // self._stage_steps, len(self._stages) - 1)]

    def step(self) -> float:
        """Train on the next batch; return its loss."""
        rows = self._next_rows()
        batch = self._collate(rows)
        teacher = self._teacher.of_rows(rows, self._device) if self._teacher else None
        step = self.steps_done % self._stage_steps
        turn = self.stage.turn_at(step)
        self.model.train()
        with self._precision():
            outputs = [output.float() for output in turn.forward(self.model, batch)]
        loss = turn.loss(Said(outputs, batch.labels, teacher, step / self._stage_steps))
        self._optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self._trainable, MAX_GRADIENT_NORM)
        self._set_rate()
        self._optimizer.step()
        self._advance()
        return loss.item()

    @contextmanager
    def as_if_ending(self) -> Iterator[None]:
        """Inside the block, give the model the weights it would have if the stage ended now."""
        before = deepcopy(self.model.state_dict())
        self._use_average()
        try:
            yield
        finally:
            self.model.load_state_dict(before)

    def state(self) -> dict[str, Any]:
        """Return the state for `restore` of a new run."""
        return {
            "steps_done": self.steps_done,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "average": self._average.state_dict() if self._average else None,
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state_all(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state that `state` returned, to the same weights."""
        self.steps_done = state["steps_done"]
        self.model.load_state_dict(state["model"])
        self._enter_stage()
        self._optimizer.load_state_dict(state["optimizer"])
        if self._average:
            self._average.load_state_dict(state["average"])
        torch.set_rng_state(state["rng"])
        torch.cuda.set_rng_state_all(state["cuda_rng"])

    @property
    def _stage_steps(self) -> int:
        return self.config.epochs * self._epoch_steps

    def _enter_stage(self) -> None:
        self._trainable = freeze_all_but(self.model, self.stage.modules)
        groups = parameter_groups(self.model, self.config.weight_decay, self.config.head_lr_factor)
        self._optimizer = torch.optim.AdamW(groups, lr=self.config.lr, fused=True)
        self._average = AveragedModel(self.model) if self.config.average_every else None
        self._batches: list[list[int]] = []

    def _next_rows(self) -> list[int]:
        epoch, index = divmod(self.steps_done, self._epoch_steps)
        if index == 0 or not self._batches:
            config = self.config
            self._batches = shuffled_batches(self._lengths, config.batch_size, config.seed, epoch)
        return self._batches[index]

    def _collate(self, indices: Sequence[int]) -> Batch:
        rows = [self._rows[i] for i in indices]
        return collate(rows, self.model.config.pad_token_id or 0).to(self._device)

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self.config.bf16)

    def _set_rate(self) -> None:
        factor = rate_factor(self.steps_done % self._stage_steps, self._stage_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = self.config.lr * group["factor"] * factor

    def _advance(self) -> None:
        self.steps_done += 1
        step = self.steps_done % self._stage_steps
        every = self.config.average_every
        if self._average and every and (step == 0 or self._is_averaged(step, every)):
            self._average.update_parameters(self.model)
        if step == 0:
            self._use_average()
            self._enter_stage()

    def _use_average(self) -> None:
        """Set the weights to their mean over the stage, once there is one.

        Late in a stage the weights move around a good solution, and their mean is nearer to it
        (Izmailov et al. 2018).
        """
        if self._average and self._average.n_averaged:
            self.model.load_state_dict(self._average.module.state_dict())

    def _is_averaged(self, step: int, every: int) -> bool:
        return step % every == 0 and step >= AVERAGE_FROM_SHARE * self._stage_steps
