"""Example texts through all exits."""

import math

from models.quality.analysis import Analysis
from models.report.markdown import Picture
from models.report.parts.example_rows import GIVEN, ExampleRow, chosen_rows, example_row
from models.report.parts.example_table import draw_examples
from models.report.parts.part import Part, missing
from models.report.style import as_svg

TITLE = "Examples"
_LEGEND = (
    "Each cell is an exit's answer with its entropy in nats{reduced}. Blue is right, orange wrong, "
    "grey not known; the surer the exit, the deeper the colour."
)
_REDUCED = {"token": ", the mean over the tokens", "multi_label": ", that of the least sure label"}


def examples_part(analysis: Analysis, slug: str, count: int) -> Part:
    """Return the table of examples.

    Args:
        analysis: of the data.
        slug: begins the picture's file name.
        count: texts of each kind that are taken from the data.
    """
    traits, own = analysis.recorded.traits, analysis.recorded
    rows = [
        example_row(own, analysis.examples[row], why, row) for why, row in chosen_rows(own, count)
    ]
    if analysis.given is not None:
        given, said = analysis.given
        rows += [example_row(said, text, GIVEN, row) for row, text in enumerate(given)]
    if not rows:
        return missing(TITLE, "none were asked for")
    most = math.log(2 if traits.task == "multi_label" else max(len(traits.labels), 2))
    legend = _LEGEND.format(reduced=_REDUCED.get(traits.task, ""))
    if traits.task == "regression":
        legend = "Each cell is an exit's value; the further off it is, the deeper the colour."
    svg = as_svg(draw_examples(rows, traits.exits, most))
    return Part(TITLE, [Picture(f"{slug}-examples.svg", legend, svg)], [_figure(r) for r in rows])


def _figure(row: ExampleRow) -> dict[str, object]:
    return {**row._asdict(), "cells": [cell._asdict() for cell in row.cells]}
