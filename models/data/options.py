"""The options of commands that read data files."""

from typing import Annotated, TypeAlias

import typer

from models.data.columns import Columns

TextColumns: TypeAlias = Annotated[
    str | None,
    typer.Option(help="The text's column, or the two of a pair: A,B. Default: known names."),
]
LabelColumn: TypeAlias = Annotated[
    str | None, typer.Option(help="The label's column. Default: known names.")
]


def named_columns(texts: str | None, label: str | None) -> Columns:
    """Return the columns that the options name."""
    return Columns(tuple(part.strip() for part in texts.split(",")) if texts else (), label)
