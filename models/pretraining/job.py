"""One call of `offramp pretrain` as data."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, PositiveInt

from models.data.columns import KNOWN, Columns
from models.training.job import TrainConfig

DEFAULT_LR = 1e-4


class PretrainConfig(TrainConfig):
    """The settings of a run that affect its weights, besides encoder and texts.

    Attributes:
        exits: exit layers; None teaches every layer.
        max_tokens: longest row, where the encoder takes as many; a longer text gives several.
    """

    lr: float = Field(DEFAULT_LR, gt=0)
    exits: tuple[int, ...] | None = None
    max_tokens: PositiveInt = 128


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
