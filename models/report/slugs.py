"""File names from names of models."""

import re


def slug(name: str) -> str:
    """Return a name with hyphens in the place of what file names should not have."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.") or "model"
