"""The model card: a README.md with generated figures.

Only the parts between two markers are generated. The rest of an existing card is kept, so
hand-written sections survive a new training run.
"""

from pathlib import Path

from models.evaluation.tables import render_figures
from serve.bundle.calibration import VariantCalibration
from serve.rules.traits import Task, Traits

FIGURES = ("<!-- figures: written by offramp -->", "<!-- end of figures -->")
TRAINING = ("<!-- training: written by offramp -->", "<!-- end of training -->")
TRAINING_HEADING = "## Training"

# By task: Hugging Face's pipeline tag, and a description.
KINDS: dict[Task, tuple[str, str]] = {
    "single_label": ("text-classification", "A text classifier"),
    "multi_label": ("text-classification", "A text classifier that gives any number of labels"),
    "regression": ("text-classification", "A model that gives a text, or two, a number"),
    "token": ("token-classification", "A tagger of words"),
}

NEW_CARD = """---
library_name: transformers
pipeline_tag: {tag}
tags: [early-exit, {tag}, offramp]
metrics: [{metrics}]
---

# {name}

{kind} that may answer after any of several layers, trained with `offramp train`.
"""


def write_card(folder: Path, traits: Traits, calibration: VariantCalibration) -> None:
    """Write the figures into the folder's README.md, and create the file if there is none."""
    path = folder / "README.md"
    card = path.read_text("utf-8") if path.is_file() else _new_card(folder, traits, calibration)
    path.write_text(replace_between(card, FIGURES, render_figures(calibration)), "utf-8")


def write_training(folder: Path, description: str) -> None:
    """Write the training section of the card, unless the card has a hand-written one."""
    path = folder / "README.md"
    card = path.read_text("utf-8")
    if TRAINING[0] in card:
        path.write_text(replace_between(card, TRAINING, description), "utf-8")
    elif f"\n{TRAINING_HEADING}\n" not in card:
        card = f"{card.rstrip()}\n\n{TRAINING_HEADING}\n"
        path.write_text(replace_between(card, TRAINING, description), "utf-8")


def _new_card(folder: Path, traits: Traits, calibration: VariantCalibration) -> str:
    tag, kind = KINDS[traits.task]
    metrics = ", ".join(calibration.exits[0].measured)
    return NEW_CARD.format(tag=tag, kind=kind, metrics=metrics, name=folder.name)


def replace_between(card: str, markers: tuple[str, str], text: str) -> str:
    """Return a card with the text between the markers, which are appended if missing."""
    start, end = markers
    before, _, rest = card.partition(start)
    after = rest.partition(end)[2]
    part = "\n".join([start, "", text, "", end])
    return f"{before.rstrip()}\n\n{part}\n\n{after.strip()}".rstrip() + "\n"
