"""Reading other systems' checkpoints, recognised by the names of their weights."""

from models.checkpoints.formats import LoadedCheckpoint, load
from models.checkpoints.parsed import CheckpointInfo
from models.errors import UnusableCheckpoint

__all__ = ["CheckpointInfo", "LoadedCheckpoint", "UnusableCheckpoint", "load"]
