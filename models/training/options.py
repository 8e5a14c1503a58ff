"""Options of the commands that train."""

from functools import partial
from typing import Annotated, Literal, TypeAlias

import typer

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
