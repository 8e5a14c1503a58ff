"""One call of `offramp pretrain` as data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, PositiveInt

from models.data.columns import KNOWN, Columns
from models.training.job import TrainConfig

DEFAULT_LR = 1e-4


class PretrainConfig(TrainConfig):
    """The settings of a run that affect its weights, besides encoder and texts.

    Attributes:
        steps: of the whole run, in place of `epochs`.
        exits: exit layers; None teaches every layer.
        groups: teach the exits in two groups in turn, not all of them in every step.
        mask_share: share of the tokens that exits must find.
        max_tokens: longest row; a longer text gives several.
        held_out: share of the rows that are measured on, and not trained on.
    """

    lr: float = Field(DEFAULT_LR, gt=0)
    steps: PositiveInt | None = None
    exits: tuple[int, ...] | None = None
    groups: bool = True
    mask_share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    max_tokens: PositiveInt = 128
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.05

    def stage_steps(self, epoch_steps: int) -> int:
        return self.steps or super().stage_steps(epoch_steps)


@dataclass(frozen=True)
class PretrainJob:
    """One call of the command.

    Attributes:
        encoder: a transformers folder.
        texts: files of texts.
        out: the encoder's folder to write.
        resume: continue from the checkpoint in `out`.
        device: a torch device.
        columns: of the files, those that the user names.
    """

    encoder: Path
    texts: tuple[Path, ...]
    out: Path
    config: PretrainConfig
    resume: bool = False
    device: str = "cpu"
    columns: Columns = KNOWN
