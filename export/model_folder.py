"""Reading policy and calibration from a model folder."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from export.errors import ExportFailed
from serve.bundle.calibration import Calibration
from serve.bundle.loader import CALIBRATION
from serve.policy.document import Policy
from serve.validation import explain

_Document = TypeVar("_Document", bound=BaseModel)

POLICY = "policy.json"


def read_policy(folder: Path) -> Policy:
    """Return the model's policy, or if there is none the default, which never exits early."""
    return _read(Policy, folder / POLICY)


def read_calibration(folder: Path) -> Calibration:
    """Return the model's figures; empty if there are none."""
    return _read(Calibration, folder / CALIBRATION)


def _read(kind: type[_Document], path: Path) -> _Document:
    if not path.is_file():
        return kind()
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ExportFailed(f"{path}: {explain(error)}") from None
