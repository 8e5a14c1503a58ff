"""The options of commands that read data files."""

from functools import partial
from typing import Annotated, TypeAlias

import typer

from models.data.columns import Columns
from models.errors import TrainingFailed

_of_data = partial(typer.Option, rich_help_panel="Data files")

TextColumns: TypeAlias = Annotated[
    str | None,
    _of_data(help="The text's column, or the two of a pair: A,B. Default: known names."),
]
LabelColumn: TypeAlias = Annotated[
    str | None, _of_data(help="The label's column. Default: known names.")
]


def named_columns(texts: str | None, label: str | None) -> Columns:
    """Return the columns that the options name."""
    return Columns(split_names(texts) or (), label)


def split_names(names: str | None) -> tuple[str, ...] | None:
    """Return names that an option lists with commas between; None if it was not given.

    Raises:
        TrainingFailed: one of them is empty.
    """
    if names is None:
        return None
    listed = tuple(part.strip() for part in names.split(","))
    if "" in listed:
        raise TrainingFailed(f"{names!r} lists an empty name: write names with commas between")
    return listed
