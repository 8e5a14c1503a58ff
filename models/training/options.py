"""Options of the commands that train, without torch, which takes seconds to load."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from models.errors import TrainingFailed

# In the folder of a run that is not finished.
CHECKPOINT = "training.ckpt"

# Options beside those that most people use, by what they are about.
of_learning = partial(typer.Option, rich_help_panel="What the exits learn")
of_model = partial(typer.Option, rich_help_panel="Shape of the model")
of_run = partial(typer.Option, rich_help_panel="Steps and the machine")

ExitLayers: TypeAlias = Annotated[
    str | None, of_model(help="Exit layers, e.g. 2,4,6. Default: every layer.")
]
# Of PyTorch's generator.
MOST_SEED = 2**64 - 1

Seed: TypeAlias = Annotated[int, of_run(min=0, max=MOST_SEED, help="Same seed, same weights.")]
Bf16: TypeAlias = Annotated[
    bool | None,
    of_run(help="Train in bfloat16. Default: if the processor has instructions for it."),
]
Device: TypeAlias = Annotated[
    Literal["auto", "cpu", "cuda"], of_run(help="auto: the GPU if there is one.")
]
Resume: TypeAlias = Annotated[bool, typer.Option(help="Continue from the checkpoint in --out.")]


def check_resume(out: Path, resume: bool) -> None:
    """Raise TrainingFailed without a run to resume, or with one that is not to be resumed."""
    path = out / CHECKPOINT
    if resume and not path.is_file():
        raise TrainingFailed(f"there is nothing to resume: {path} does not exist")
    if not resume and path.exists():
        raise TrainingFailed(
            f"{path} is of an unfinished run: go on with it by --resume, or delete it to start anew"
        )
