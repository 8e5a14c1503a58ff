import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from export.bundle import plan, write
from loadtest.bench.engine import random_model
from loadtest.bench.engine.cached_bundle import cached_bundle
from loadtest.bench.engine.settings import Budget, ModelSettings
from loadtest.bench.inputs import Shape
from tests.conftest import InTurns

TINY = ModelSettings(name="tiny", layers=4, width=32, heads=2, vocabulary=200, max_tokens=64)
HURRIED = Budget(
    shapes=(Shape(1, 4), Shape(2, 8)),
    shape_s=0,
    shape_turns=2,
    leave_turns=1,
    leave_s=0.0,
    rounds=1,
    requests=20,
    in_flight=8,
    bookkeeping_rows=100,
    lone_turns=2,
    memory_requests=30,
    wide_memory_requests=20,
)


@pytest.fixture(scope="session")
def cache(in_turns: InTurns) -> Path:
    """Return a cache that holds the tiny model's bundle."""
    with in_turns("bench") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(random_model, "build", _build_here)
        cached_bundle(TINY, folder, lambda step: None)
    return folder


def _build_here(settings: ModelSettings, precisions: Sequence[str], folder: Path) -> None:
    """Build in this process, which has PyTorch loaded already."""
    with tempfile.TemporaryDirectory() as model:
        random_model.write(settings, Path(model))
        write(plan(Path(model), precisions), folder)
