"""Measures a trained model, and writes its figures, its policy and its card."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from models.data.examples import Example
from models.model_folder import POLICY, as_file
from models.multi_exit import MultiExitModel
from models.profiles import profiles_policy
from models.progress import progress
from models.quality.card import write_card
from models.quality.data import data_of
from models.quality.recorded import Recorded, inputs, recorded
from models.quality.scores import exit_figures, main_metric
from models.quality.source import TorchSource
from serve.bundle.calibration import Calibration, VariantCalibration
from serve.bundle.loader import CALIBRATION, TOKENIZER
from serve.bundle.recording import RECORDING


def measure_folder(
    folder: Path,
    path: Path,
    examples: Sequence[Example],
    max_tokens: int,
    console: Console,
    answered_by: str | None = None,
) -> Recorded:
    """Measure a stored model; write its calibration, recording, policy and card.

    Args:
        folder: the model folder.
        path: a file that the model was not trained on.
        examples: its rows.
        max_tokens: longer texts are cut.
        console: for progress.
        answered_by: the classifier whose answers the labels are. Calibration would call them
            correct, so there is none, and the card says whose they are.

    Returns:
        What all exits say of the examples.
    """
    model = MultiExitModel.load(folder)
    source = TorchSource(model, (folder / TOKENIZER).read_text("utf-8"), max_tokens)
    with progress(console, "measuring", len(examples)) as advance:
        found = recorded(source, *inputs(examples), advance)
    figures = VariantCalibration(
        data=data_of(path, len(examples)),
        metric=main_metric(model.traits),
        exits=exit_figures(found),
    )
    _write_recording(folder / RECORDING, found)
    (folder / POLICY).write_text(as_file(profiles_policy()), "utf-8")
    write_card(folder, model.traits, figures)
    if answered_by:
        _say_agreement(folder, answered_by)
    else:
        calibration = Calibration(variants={"fp32": figures})
        (folder / CALIBRATION).write_text(as_file(calibration), "utf-8")
    return found


def _say_agreement(folder: Path, classifier: str) -> None:
    """Let no file say accuracy of what was measured against a classifier's own answers."""
    (folder / CALIBRATION).unlink(missing_ok=True)
    card = folder / "README.md"
    said = f"The labels are {classifier}'s own answers, so that 100 % is the same answer always. "
    text = card.read_text("utf-8").replace("Measured on", f"{said}Measured on", 1)
    card.write_text(text, "utf-8")


def _write_recording(path: Path, found: Recorded) -> None:
    """Write all exits' logits, except for taggers: every token's would be larger than the model."""
    if found.traits.task == "token":
        path.unlink(missing_ok=True)
    else:
        np.save(path, found.logits)
