"""Copies of the tiny bundle, to damage."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def bundle_copy(bundle_folder: Path, tmp_path: Path) -> Callable[..., Path]:
    """Make copies of the bundle that a test may damage, under the names given."""

    def copy(name: str = "copy") -> Path:
        return Path(shutil.copytree(bundle_folder, tmp_path / name))

    return copy
