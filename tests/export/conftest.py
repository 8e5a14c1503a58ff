"""The tiny model, its folder to be exported, and its bundle's segments as bare sessions."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from models.multi_exit import MultiExitModel
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from tests.export.support.chains import Chain
from tests.support.tiny import POLICY, tiny_model, tiny_tokenizer

MakeFolder = Callable[..., Path]
OpenChain = Callable[[Precision], Chain]


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

    def make(name: str = "model", **files: str) -> Path:
        folder = tmp_path / name
        tiny_model().save(folder)
        tiny_tokenizer().save(str(folder / "tokenizer.json"))
        (folder / "policy.json").write_text(POLICY.model_dump_json(exclude_none=True))
        for stem, text in files.items():
            (folder / f"{stem}.json").write_text(text)
        return folder

    return make
