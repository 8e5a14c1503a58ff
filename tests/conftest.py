"""The tiny bundle, exported once per test run for all tests that only read it."""

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
