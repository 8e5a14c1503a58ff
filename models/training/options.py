"""Options of the commands that train."""

from typing import Annotated, Literal, TypeAlias

import typer

ExitLayers: TypeAlias = Annotated[
    str | None, typer.Option(help="Exit layers, e.g. 2,4,6. Default: every layer.")
]
# Of PyTorch's generator.
MOST_SEED = 2**64 - 1

Seed: TypeAlias = Annotated[
    int, typer.Option(min=0, max=MOST_SEED, help="Same seed, same weights.")
]
Bf16: TypeAlias = Annotated[
    bool | None,
    typer.Option(help="Train in bfloat16. Default: if the processor has instructions for it."),
]
Device: TypeAlias = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="auto: the GPU if there is one.")
]
Resume: TypeAlias = Annotated[bool, typer.Option(help="Continue from the checkpoint in --out.")]
