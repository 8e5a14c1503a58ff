"""`offramp evaluate`: measure a model folder and write the figures into it."""

from models.training.measured import measure_folder as evaluate_folder

__all__ = ["evaluate_folder"]
