"""The policy and the calibration of a model folder."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from models.errors import TrainingFailed
from models.model_files import check_files
from serve.bundle.calibration import Calibration
from serve.bundle.loader import CALIBRATION
from serve.policy.document import Policy
from serve.validation import explain

_Document = TypeVar("_Document", bound=BaseModel)

POLICY = "policy.json"


def read_policy(folder: Path) -> Policy | None:
    """Return a model's policy, if there is one.

    Raises:
        TrainingFailed: it cannot be read.
    """
    return read_document(Policy, folder, POLICY)


def read_calibration(folder: Path) -> Calibration:
    """Return a model's figures and certified rules; empty if there are none.

    Raises:
        TrainingFailed: they cannot be read.
    """
    return read_document(Calibration, folder, CALIBRATION) or Calibration()


def as_file(document: BaseModel) -> str:
    """Return a document as model folders and bundles hold it."""
    return document.model_dump_json(indent=1, exclude_none=True) + "\n"


def read_document(kind: type[_Document], folder: Path, name: str) -> _Document | None:
    """Return a document of a model folder; None if it is not there.

    Raises:
        TrainingFailed: it cannot be read.
    """
    check_files(folder)
    path = folder / name
    if not path.is_file():
        return None
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise TrainingFailed(f"{path}: {explain(error)}") from None
