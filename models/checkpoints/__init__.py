"""Reading other people's checkpoints, told by the names of their weights."""

from models.checkpoints.errors import UnusableCheckpoint
from models.checkpoints.formats import Loaded, load
from models.checkpoints.found import Found

__all__ = ["Found", "Loaded", "UnusableCheckpoint", "load"]
