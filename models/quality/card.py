"""The model card: a README.md with generated figures.

Only the parts between two markers are generated. The rest of an existing card is kept, so
hand-written sections survive a new training run.
"""

from pathlib import Path

from models.quality.scores import ACCURACY_F1, CORRELATIONS, MCC
from models.report.markdown import table
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

_TITLES = {
    "f1": "F1",
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
    "entity_f1": "entity F1",
    "pearson": "Pearson",
    "spearman": "Spearman",
    MCC: "MCC",
    ACCURACY_F1: "accuracy and F1",
    CORRELATIONS: "Pearson and Spearman",
}
_CORRELATIONS = {"pearson", "spearman", MCC, CORRELATIONS}

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
    path.write_text(replace_between(card, FIGURES, exit_table(calibration)), "utf-8")


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


def title(metric: str) -> str:
    """Return a metric's display name."""
    return _TITLES.get(metric, metric)


def unit(metric: str) -> str:
    """Return the unit of a metric that `hundredths` has formatted."""
    return "x 100" if metric in _CORRELATIONS else "%"


def hundredths(value: float, signed: bool = False) -> str:
    """Return a metric, or a difference of two, in hundredths."""
    return f"{100 * value:{'+' if signed else ''}.2f}"


def exit_table(figures: VariantCalibration) -> str:
    """Return Markdown: what was measured on, and a table of the exits."""
    data, metrics = figures.data, figures.exits[0].measured
    rows = [[e.layer, *(hundredths(e.value(m)) for m in metrics)] for e in figures.exits]
    return (
        f"Measured on `{data.name}` ({data.rows} rows, sha256 `{data.sha256[:12]}...`).\n\n"
        + table(["exit layer", *(f"{title(m)} {unit(m)}" for m in metrics)], rows)
    )
