"""The commands of `models.quality.cli`, under their former name."""

from models.quality.cli import calibrate, recommend

__all__ = ["calibrate", "recommend"]
