"""Measures a trained model, and writes its figures, its policy and its card."""

from pathlib import Path

import numpy as np
from rich.console import Console

from models.data.columns import KNOWN, Columns
from models.data.datasets import read_dataset
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
    folder: Path, path: Path, max_tokens: int, columns: Columns = KNOWN, *, console: Console
) -> Recorded:
    """Measure a stored model; write its calibration, recording, policy and card.

    Args:
        folder: the model folder.
        path: labelled examples that the model was not trained on.
        max_tokens: longer texts are cut.
        columns: those that the user names.
        console: for progress.

    Returns:
        What all exits say of the examples.
    """
    model = MultiExitModel.load(folder)
    examples = read_dataset(path, model.exit_config.task, model.labels, columns).examples
    source = TorchSource(model, (folder / TOKENIZER).read_text("utf-8"), max_tokens)
    with progress(console, "measuring", len(examples)) as advance:
        found = recorded(source, *inputs(examples), advance)
    figures = VariantCalibration(
        data=data_of(path, len(examples)),
        metric=main_metric(model.traits),
        exits=exit_figures(found),
    )
    calibration = Calibration(variants={"fp32": figures})
    (folder / CALIBRATION).write_text(as_file(calibration), "utf-8")
    _write_recording(folder / RECORDING, found)
    (folder / POLICY).write_text(as_file(profiles_policy()), "utf-8")
    write_card(folder, model.traits, figures)
    return found


def _write_recording(path: Path, found: Recorded) -> None:
    """Write all exits' logits, except for taggers: every token's would be larger than the model."""
    if found.traits.task == "token":
        path.unlink(missing_ok=True)
    else:
        np.save(path, found.logits)
