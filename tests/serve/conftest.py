"""The tiny bundle, exported once per test run."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from serve.bundle import Bundle, load_bundle
from tests.tiny import write_tiny_bundle


@pytest.fixture(scope="session")
def bundle_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle of a random model: exits 1 to 4, three labels, fp32 and int8."""
    return write_tiny_bundle(tmp_path_factory.mktemp("bundles"))


@pytest.fixture(scope="session")
def bundle(bundle_folder: Path) -> Bundle:
    """Return the same bundle, loaded."""
    return load_bundle(bundle_folder)


@pytest.fixture
def bundle_copy(bundle_folder: Path, tmp_path: Path) -> Callable[..., Path]:
    """Make copies of the bundle that a test may damage, under the names given."""

    def copy(name: str = "copy") -> Path:
        return Path(shutil.copytree(bundle_folder, tmp_path / name))

    return copy
