"""Reading other systems' checkpoints, recognised by the names of their weights."""

from models.checkpoints.errors import UnusableCheckpoint
from models.checkpoints.formats import LoadedCheckpoint, load
from models.checkpoints.parsed import CheckpointInfo

__all__ = ["CheckpointInfo", "LoadedCheckpoint", "UnusableCheckpoint", "load"]
