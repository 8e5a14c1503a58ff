"""What export reads of a model folder besides the weights."""

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from export.errors import ExportFailed
from models.multi_exit import MultiExitModel
from serve.bundle import CALIBRATION, TOKENIZER
from serve.calibration import Calibration
from serve.explain import explain
from serve.policy import Policy

_Document = TypeVar("_Document", bound=BaseModel)

POLICY = "policy.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"


def load_model(folder: Path) -> MultiExitModel:
    """Load a multi-exit model, and check that what serving needs lies beside it.

    Raises:
        ExportFailed: no such folder, no such model, or no tokenizer.
    """
    if not folder.is_dir():
        raise ExportFailed(f"{folder}: no such folder")
    if not (folder / TOKENIZER).is_file():
        raise ExportFailed(f"{folder}: {TOKENIZER} is missing; save the fast tokenizer there")
    try:
        return MultiExitModel.load(folder)
    except (ValueError, OSError) as error:
        raise ExportFailed(str(error)) from error


def read_policy(folder: Path) -> Policy:
    """Return the model's policy, or the default one, which never exits early."""
    return _read(Policy, folder / POLICY)


def read_calibration(folder: Path) -> Calibration:
    """Return the model's figures, or none."""
    return _read(Calibration, folder / CALIBRATION)


def max_tokens(folder: Path, model: MultiExitModel) -> int:
    """Return the longest input: what positions and tokenizer both allow.

    A truncation length inside `tokenizer.json` is how somebody once called it, and not a limit.
    """
    positions: int = model.config.max_position_embeddings
    path = folder / _TOKENIZER_CONFIG
    stated = json.loads(path.read_bytes()).get("model_max_length") if path.is_file() else None
    # transformers writes 1e30 for "no limit".
    return int(min(positions, stated or positions))


def _read(kind: type[_Document], path: Path) -> _Document:
    if not path.is_file():
        return kind()
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ExportFailed(f"{path}: {explain(error)}") from None
