"""The state of a training run on disk, so that a stopped run can continue."""

import os
from pathlib import Path
from typing import Any, cast

import torch

from models.errors import TrainingFailed, in_one_line


class Checkpoint:
    """A file with the state and the fingerprint of one run.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path = path
        self._fingerprint = fingerprint

    def save(self, state: dict[str, Any]) -> None:
        """Replace the file; a failure during the write leaves the old file.

        Raises:
            TrainingFailed: it cannot be written.
        """
        partial = self.path.with_suffix(".partial")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                torch.save({"fingerprint": self._fingerprint, "state": state}, file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.path)
        except (OSError, RuntimeError) as error:  # PyTorch hides the one behind the other
            raise TrainingFailed(
                f"{self.path}: cannot be written ({in_one_line(error)}); is the disk full?"
            ) from error
        finally:
            partial.unlink(missing_ok=True)

    def load(self) -> dict[str, Any]:
        """Return the saved state.

        Raises:
            TrainingFailed: it cannot be read, or it belongs to a run with other
                settings or data.
        """
        try:
            saved = torch.load(self.path, map_location="cpu", weights_only=True)
            fingerprint, state = saved["fingerprint"], saved["state"]
        except Exception as error:  # PyTorch raises many kinds, among them EOFError
            raise TrainingFailed(
                f"{self.path} cannot be read ({in_one_line(error)[:80]}): delete it to start anew"
            ) from error
        if fingerprint != self._fingerprint:
            raise TrainingFailed(
                f"{self.path} is of a run with other settings or data: "
                "repeat that run's options, or delete it to start anew"
            )
        return cast("dict[str, Any]", state)

    def remove(self) -> None:
        """Delete the file once the run is finished."""
        self.path.unlink(missing_ok=True)
