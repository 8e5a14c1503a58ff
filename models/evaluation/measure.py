"""`offramp evaluate`: measure a model folder, and write into it what was found."""

from pathlib import Path

import numpy as np

from models.data.datasets import read_dataset
from models.data.encoding import encode
from models.errors import TrainingFailed
from models.evaluation.card import write_card
from models.evaluation.evaluate import calibrate, choose_policy
from models.evaluation.outcome import Outcome, run_model
from models.multi_exit import MultiExitModel
from serve.bundle.calibration import Calibration, Data, VariantCalibration
from serve.bundle.loader import CALIBRATION, sha256_of
from serve.bundle.recording import RECORDING

POLICY = "policy.json"


def measure(folder: Path, path: Path, max_tokens: int) -> VariantCalibration:
    """Measure a model as it is stored; write its calibration, recording, policy and card.

    Args:
        folder: the model folder.
        path: labelled examples that were not trained on.
        max_tokens: longer texts are cut.

    Raises:
        TrainingFailed: the folder holds no multi-exit model, or the data cannot be used.
    """
    try:
        model = MultiExitModel.load(folder)
    except ValueError as error:
        raise TrainingFailed(str(error)) from error
    examples = read_dataset(path, model.exit_config.task, model.labels).examples
    outcome = run_model(model, encode(folder, examples, max_tokens))
    data = Data(name=f"{path.parent.name}/{path.name}", rows=len(examples), sha256=sha256_of(path))
    policy = choose_policy(outcome)
    figures = calibrate(outcome, data, policy)
    calibration = Calibration(variants={"fp32": figures})
    (folder / CALIBRATION).write_text(calibration.model_dump_json(indent=1) + "\n", "utf-8")
    _write_recording(folder / RECORDING, outcome)
    (folder / POLICY).write_text(
        policy.model_dump_json(indent=1, exclude_none=True) + "\n", "utf-8"
    )
    write_card(folder, model.traits, figures, policy)
    return figures


def _write_recording(path: Path, outcome: Outcome) -> None:
    """Write all exits' logits; not those of every token, which would outweigh the model."""
    if outcome.traits.task == "token":
        path.unlink(missing_ok=True)
    else:
        np.save(path, outcome.logits)
