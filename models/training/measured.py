"""Measures a trained model, and writes its figures, its policy and its card."""

from pathlib import Path

import numpy as np

from models.data.columns import KNOWN, Columns
from models.data.datasets import read_dataset
from models.data.encoding import encode
from models.errors import TrainingFailed
from models.evaluation.calibration import figures_of
from models.evaluation.model_card import write_card
from models.evaluation.predictions import Predictions, predict
from models.multi_exit import MultiExitModel
from models.profiles import profiles_policy
from serve.bundle.calibration import Calibration, VariantCalibration
from serve.bundle.loader import CALIBRATION, sha256_of
from serve.bundle.recording import RECORDING
from serve.policy.ladder import Data

POLICY = "policy.json"


def measure_folder(
    folder: Path, path: Path, max_tokens: int, columns: Columns = KNOWN
) -> VariantCalibration:
    """Measure a stored model; write its calibration, recording, policy and card.

    Args:
        folder: the model folder.
        path: labelled examples that the model was not trained on.
        max_tokens: longer texts are cut.
        columns: those that the user names.

    Raises:
        TrainingFailed: the folder holds no multi-exit model, or the data cannot be used.
    """
    try:
        model = MultiExitModel.load(folder)
    except ValueError as error:
        raise TrainingFailed(str(error)) from error
    examples = read_dataset(path, model.exit_config.task, model.labels, columns).examples
    predictions = predict(model, encode(folder, examples, max_tokens))
    data = Data(name=f"{path.parent.name}/{path.name}", rows=len(examples), sha256=sha256_of(path))
    figures = figures_of(predictions, data)
    calibration = Calibration(variants={"fp32": figures})
    (folder / CALIBRATION).write_text(calibration.model_dump_json(indent=1) + "\n", "utf-8")
    _write_recording(folder / RECORDING, predictions)
    policy = profiles_policy().model_dump_json(indent=1, exclude_none=True)
    (folder / POLICY).write_text(policy + "\n", "utf-8")
    write_card(folder, model.traits, figures)
    return figures


def _write_recording(path: Path, predictions: Predictions) -> None:
    """Write all exits' logits, except for taggers: every token's would be larger than the model."""
    if predictions.traits.task == "token":
        path.unlink(missing_ok=True)
    else:
        np.save(path, predictions.logits)
