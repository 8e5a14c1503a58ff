"""One call of `offramp train` as data: model, settings, files."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveFloat, PositiveInt

from models.data.columns import KNOWN, Columns
from models.heads import AnyHeadConfig
from models.training.objective import Objective
from serve.rules.traits import Task

# The recipe that leaves a classifier as it is and trains its earlier exits only.
FROZEN = "frozen"


class ModelChoice(BaseModel):
    """The model to train: encoder, exits, heads, recipe.

    Attributes:
        encoder: a transformers folder; of a classifier with the data's labels, its head too.
        task: what the labels mean; None detects it from the training file.
        labels: label names by id; None takes them from the data.
        layers: keep only the encoder's first so many layers.
        exits: exit layers; None puts one after every layer, or after the last one kept.
        head: shape of new heads; None takes the one that fits the task.
        recipe: a key of `models.training.recipes.RECIPES`.
        objective: what the exits learn besides their labels, and how much each counts.
        teacher: a classifier's folder; all exits learn from its answers too.
        teacher_weight: weight of learning from the teacher.
        temperature: softens the probabilities that the exits and the teacher compare.
        max_tokens: longer texts are cut.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    encoder: Path
    task: Task | None = None
    labels: tuple[str, ...] | None = None
    layers: PositiveInt | None = None
    exits: tuple[int, ...] | None = None
    head: AnyHeadConfig | None = None
    recipe: str = "joint"
    objective: Objective = Objective()
    teacher: Path | None = None
    teacher_weight: PositiveFloat = 1.0
    temperature: PositiveFloat = 1.0
    max_tokens: PositiveInt = 128

    @property
    def frozen(self) -> bool:
        """Whether the classifier must stay as it is."""
        return self.recipe == FROZEN

    @property
    def taught(self) -> bool:
        """Whether the teacher's answers stand for labels."""
        return self.objective.unlabelled and self.teacher is not None


class TrainConfig(BaseModel):
    """The settings of a run that affect its weights, besides model and data.

    Attributes:
        epochs: passes over the data, per stage.
        lr: peak learning rate; it rises over the first 6 % of a stage and falls to 0.
        head_lr_factor: factor on the heads' learning rate; the heads start untrained.
        weight_decay: AdamW's, on matrices only.
        average_every: a stage ends with the mean of the weights taken every so many steps and at
            its last step; None keeps the last weights.
        evaluate_every: steps between evaluations; None evaluates after each epoch.
        keep_best: the last stage ends with the weights of its best evaluation.
        bf16: run forward and backward in bfloat16; weights stay in float32.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

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


def default_lr(recipe: str) -> float:
    """Return the peak learning rate of a recipe; new heads alone bear a higher one."""
    return 1e-3 if recipe == FROZEN else float(TrainConfig().lr)


@dataclass(frozen=True)
class TrainJob:
    """One call of the command.

    Attributes:
        train: the training file.
        dev: the file to measure on.
        out: the model folder to write.
        dtype: type of the saved weights, fp32 or fp16.
        resume: continue from the checkpoint in `out`.
        device: a torch device.
        columns: of both files, those that the user names.
        answered_by: the classifier whose answers the labels of `dev` are; None where they are
            correct ones.
        table: whether a model that can have a table gets one.
    """

    choice: ModelChoice
    config: TrainConfig
    train: Path
    dev: Path
    out: Path
    dtype: str = "fp32"
    resume: bool = False
    device: str = "cpu"
    columns: Columns = KNOWN
    answered_by: str | None = None
    table: bool = True

    @property
    def measured(self) -> str | None:
        """What the figures of `dev` are called; None for the metric's name."""
        return f"agreement with {self.answered_by}" if self.answered_by else None
