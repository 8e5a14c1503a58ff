"""Copies of the tiny bundle, to damage; models that count as deep."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def bundle_copy(bundle_folder: Path, tmp_path: Path) -> Callable[..., Path]:
    """Make copies of the bundle that a test may damage, under the names given."""

    def copy(name: str = "copy") -> Path:
        return Path(shutil.copytree(bundle_folder, tmp_path / name))

    return copy


@pytest.fixture(scope="module", params=["a shallow model", "a deep one"])
def deep(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of the test's models, the last exit alone has a straight way, or every exit has."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "a deep one":
            patch.setattr("serve.runtime.straight_run.DEEP", 1)
        yield
