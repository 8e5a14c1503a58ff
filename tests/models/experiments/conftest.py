"""A tiny encoder and tiny data where experiments look for theirs."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import pytest

from models.experiments import context, run
from models.experiments.context import Context
from models.experiments.run import BUDGETS, ENCODERS, Run
from models.experiments.training import WEIGHTS, Record, asked

OPTIONS = (*BUDGETS["sst2"].options, "--max-tokens", "32")


def as_if_trained(run: Run, places: Context) -> None:
    """Write what a finished training leaves, without a model."""
    places.folder(run).mkdir(parents=True)
    (places.folder(run) / WEIGHTS).write_bytes(b"weights")
    Record(asked(run, places), (2.0, 3.0), finished=True).write(run, places)


@pytest.fixture
def places(
    tmp_path: Path,
    make_encoder: Callable[[], Path],
    sentiment_lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Context:
    """SST-2 and MRPC are two dozen rows, twenty of which SST-2's models learn from."""
    names = ("data", "zoo", "bundles", "runs", "p.md")
    found = Context(*(tmp_path / name for name in names))
    shutil.copytree(make_encoder(), found.zoo / ENCODERS["minilm"])
    for path in (
        found.data / "sst2/dev.tsv",
        found.data / "mrpc/train.tsv",
        found.data / "mrpc/dev.tsv",
        found.zoo / "sst2/train.tsv",
        found.zoo / "sst2/held-out.tsv",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(sentiment_lines) + "\n", "utf-8")
    small = BUDGETS["sst2"]._replace(rows=20, batch_size=4, options=OPTIONS)
    for module in (context, run):
        monkeypatch.setattr(module, "BUDGETS", MappingProxyType({**BUDGETS, "sst2": small}))
    return found
