"""Reading policy, calibration and token limit from a model folder."""

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from export.errors import ExportFailed
from models.multi_exit import MultiExitModel
from serve.bundle.calibration import Calibration
from serve.bundle.loader import CALIBRATION
from serve.policy.document import Policy
from serve.validation import explain

_Document = TypeVar("_Document", bound=BaseModel)

POLICY = "policy.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"


def read_policy(folder: Path) -> Policy:
    """Return the model's policy, or if there is none the default, which never exits early."""
    return _read(Policy, folder / POLICY)


def read_calibration(folder: Path) -> Calibration:
    """Return the model's figures; empty if there are none."""
    return _read(Calibration, folder / CALIBRATION)


def max_tokens(folder: Path, model: MultiExitModel) -> int:
    """Return the longest input that both the model's positions and the tokenizer config allow.

    The truncation length in `tokenizer.json` is ignored: it is a setting of an earlier call.
    """
    positions = model.backbone.max_tokens
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
