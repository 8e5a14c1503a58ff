"""The tiny bundles, exported once for all tests that only read them.

PyTorch takes seconds to import. The process that hands the tests out reads this file first and
needs none of it, so it is imported inside functions.
"""

import fcntl
import functools
import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from serve.access import usage
from serve.bundle.loader import Bundle, load_bundle
from tests.support.kept_bundles import kept_folder
from tests.support.tiny import write_tiny_bundle

# A busy machine takes longer over an example than any deadline allows for.
settings.register_profile("default", deadline=None)
# `--hypothesis-profile soak` runs for minutes to an hour.
settings.register_profile("soak", max_examples=20_000, deadline=None)


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over a million objects that are there to stay."""
    gc.collect()
    gc.freeze()


Export = Callable[..., Path]
InTurns = Callable[[str], AbstractContextManager[Path]]


@pytest.fixture(scope="session", autouse=True)
def _operators_listed_once() -> Iterator[None]:
    """Spare every trace the fifth of its time in which PyTorch lists its operators anew."""
    if "torch" not in sys.modules:
        yield
        return
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with pytest.MonkeyPatch.context() as patch:
        listed = functools.cache(ONNXRegistry.from_torchlib)
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(listed))
        yield


@pytest.fixture(scope="session")
def in_turns(tmp_path_factory: pytest.TempPathFactory) -> InTurns:
    """Lend a folder that all processes of the test run share to one of them at a time."""
    root = tmp_path_factory.getbasetemp()
    top = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    @contextmanager
    def lend(name: str) -> Iterator[Path]:
        folder = top / "shared" / name
        folder.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder

    return lend


@pytest.fixture(scope="session")
def export_once(in_turns: InTurns) -> Export:
    """Export as `write_tiny_bundle` does, unless an earlier run has; return the run's own copy."""

    def export(name: str, *arguments: Any, **options: Any) -> Path:
        with in_turns(name) as folder:
            if not (folder / name).exists():
                kept = kept_folder(
                    name, lambda into: write_tiny_bundle(into, name, *arguments, **options)
                )
                shutil.copytree(kept, folder, dirs_exist_ok=True)
        return folder / name

    return export


@pytest.fixture(scope="session")
def bundle_folder(export_once: Export) -> Path:
    """Return a bundle of a random model: exits 1 to 4, three labels, fp32 and int8."""
    return export_once("tiny")


@pytest.fixture(scope="session")
def bundle(bundle_folder: Path) -> Bundle:
    """Return the same bundle, loaded."""
    return load_bundle(bundle_folder)


@pytest.fixture(scope="session")
def half_bundle(export_once: Export) -> Bundle:
    """Return a bundle of the same model for GPUs: fp32 and fp16."""
    return load_bundle(export_once("half", ("fp32", "fp16")))


@pytest.fixture(scope="session")
def shared_bundle(export_once: Export) -> Bundle:
    """Return a bundle of a random ALBERT: exits 1 to 4, three labels, fp32 and int8."""
    return load_bundle(export_once("shared", family="albert"))


def pytest_configure(config: pytest.Config) -> None:
    """Let a soak's refused requests go on without end: their answers are what it looks at."""
    if config.getoption("--hypothesis-profile") == "soak":
        setattr(usage, "REFUSED_BURST_BYTES", 2**60)  # noqa: B010
