"""The tiny bundle, exported once per test run for all tests that only read it."""

import gc
from pathlib import Path

import pytest
from hypothesis import settings

from serve.bundle import Bundle, load_bundle
from tests.tiny import write_tiny_bundle

# `--hypothesis-profile soak`: for an hour with nothing better to do.
settings.register_profile("soak", max_examples=20_000, deadline=None)


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over a million objects that are there to stay."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def bundle_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle of a random model: exits 1 to 4, three labels, fp32 and int8."""
    return write_tiny_bundle(tmp_path_factory.mktemp("bundles"))


@pytest.fixture(scope="session")
def bundle(bundle_folder: Path) -> Bundle:
    """Return the same bundle, loaded."""
    return load_bundle(bundle_folder)


@pytest.fixture(scope="session")
def half_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Return a bundle of the same model for GPUs: fp32 and fp16."""
    folder = tmp_path_factory.mktemp("bundles")
    return load_bundle(write_tiny_bundle(folder, "half", ("fp32", "fp16")))


@pytest.fixture(scope="session")
def shared_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Return a bundle of a random ALBERT: exits 1 to 4, three labels, fp32 and int8."""
    folder = tmp_path_factory.mktemp("bundles")
    return load_bundle(write_tiny_bundle(folder, "shared", family="albert"))
