"""The tiny model, its folder to be exported, and its bundle's segments as bare sessions."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from models.multi_exit import MultiExitModel
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from tests.export.support.chains import Chain
from tests.support.tiny import tiny_model, write_tiny_model

MakeFolder = Callable[..., Path]
OpenChain = Callable[[Precision], Chain]


def offramp(command: Callable[..., None], *words: object) -> Result:
    """Run a command; its errors are raised."""
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture(scope="session")
def model() -> MultiExitModel:
    """Return the model of the tiny bundle: four layers, an exit after each."""
    return tiny_model()


@pytest.fixture(scope="session")
def open_chain(bundle: Bundle) -> OpenChain:
    """Open the bundle's segments of one precision as bare sessions."""

    @cache
    def open_(precision: Precision) -> Chain:
        return Chain(bundle.segment_paths(precision))

    return open_


@pytest.fixture
def make_folder(tmp_path: Path) -> MakeFolder:
    """Write model folders; keyword arguments are further files and their text."""
    return lambda name="model", **files: write_tiny_model(tmp_path / name, **files)
