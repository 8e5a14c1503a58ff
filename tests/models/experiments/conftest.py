"""A tiny encoder and tiny data where experiments look for theirs."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from models.experiments import budgets
from models.experiments.places import Places
from models.experiments.record import WEIGHTS, Record, Seconds, asked
from models.experiments.run import Run

OPTIONS = (*budgets.BUDGETS["sst2"].options, "--max-tokens", "32")


def as_if_trained(run: Run, places: Places) -> None:
    """Write what a finished training leaves, without a model."""
    run.folder(places.runs).mkdir(parents=True)
    (run.folder(places.runs) / WEIGHTS).write_bytes(b"weights")
    Record(asked(run, places), Seconds(2.0, 3.0), finished=True).write(run, places)


@pytest.fixture
def places(
    tmp_path: Path,
    make_encoder: Callable[[], Path],
    sentiment_lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Places:
    """SST-2 and MRPC are two dozen rows, twenty of which SST-2's models learn from."""
    found = Places(
        tmp_path / "data",
        tmp_path / "zoo",
        tmp_path / "bundles",
        tmp_path / "runs",
        tmp_path / "p.md",
    )
    shutil.copytree(make_encoder(), found.zoo / budgets.ENCODERS["minilm"])
    for path in (
        found.data / "sst2/dev.tsv",
        found.data / "mrpc/train.tsv",
        found.data / "mrpc/dev.tsv",
        found.zoo / "sst2/train.tsv",
        found.zoo / "sst2/held-out.tsv",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(sentiment_lines) + "\n", "utf-8")
    small = replace(budgets.BUDGETS["sst2"], rows=20, batch_size=4, options=OPTIONS)
    monkeypatch.setattr(
        budgets, "BUDGETS", MappingProxyType(dict(budgets.BUDGETS) | {"sst2": small})
    )
    return found
