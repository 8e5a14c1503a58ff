"""Bundles whose exits mostly agree, files of random texts for them, and their calibration."""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import Result

from models.quality.calibrate import CalibrationJob, calibrate
from models.quality.recorded import Recorded, recorded
from models.quality.source import BundleSource
from serve.bundle.loader import load_bundle, sha256_of
from serve.policy.ladder import Ladder
from serve.rules.traits import Task
from serve.runtime.placement import place
from serve.tokenization.tokenizer import Text
from tests.models.conftest import offramp
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.task_bundles import LABELS, Kind, write_task_bundle
from tests.support.tiny import WORDS

MakeBundle = Callable[..., Path]
MakeData = Callable[..., Path]


def run(bundle: Path, data: Path, **options: Any) -> tuple[list[Ladder], str]:
    """Calibrate; return the ladders, and the remarks made."""
    out = io.StringIO()
    job = CalibrationJob(bundle, (data,), **options)
    found = [each.ladder for each in calibrate(job, Console(file=out, width=300))]
    return found, out.getvalue()


def certified(bundle: Path, data: Path, **options: Any) -> Ladder:
    """Return the one ladder of a bundle that texts without labels calibrate."""
    (ladder,), _ = run(bundle, data, labelled=False, **options)
    return ladder


def command(bundle: Path, data: Path, *options: object) -> Result:
    return offramp("calibrate", bundle, *options, data=data)


def ladder_of(bundle: Path) -> Ladder:
    """Return the ladder that a bundle holds for fp32."""
    ladder = load_bundle(bundle).ladder("fp32")
    assert ladder
    return ladder


def recording_of(bundle: Path, texts: Sequence[str]) -> Recorded:
    """Return what a bundle says of some texts, in fp32 on the CPU."""
    loaded = load_bundle(bundle)
    source = BundleSource(loaded, place(loaded, "cpu", "fp32"))
    return recorded(source, [Text(text) for text in texts])


def texts_in(data: Path) -> list[str]:
    return [json.loads(line)["text"] for line in data.read_text().splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def listed(bundle: Path, name: str) -> Path:
    """List a file in a bundle's manifest; return the bundle."""
    hashes = {name: sha256_of(bundle / name)}
    rewrite_manifest(bundle, lambda manifest: manifest["files"].update(hashes))
    return bundle


def write_texts(data: Path, texts: Sequence[str]) -> Path:
    data.write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts))
    return data


@pytest.fixture
def make_bundle(tmp_path_factory: pytest.TempPathFactory) -> MakeBundle:
    """Return a factory of bundles by task: exits after layers 1, 2 and 4, precision fp32."""
    return lambda task="single_label", **kind: write_task_bundle(
        tmp_path_factory.mktemp("bundles"), Kind(task, **kind), alike=True
    )


@pytest.fixture
def make_data(tmp_path: Path) -> MakeData:
    """Return a factory of labelled files of random texts."""

    def make(task: Task = "single_label", num_texts: int = 400, name: str = "data") -> Path:
        draw = np.random.default_rng(len(name))
        path = tmp_path / f"{name}.jsonl"
        records = [_record(task, draw) for _ in range(num_texts)]
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
        return path

    return make


def _record(task: Task, draw: np.random.Generator) -> dict[str, object]:
    words = draw.choice(WORDS, draw.integers(1, 12)).tolist()
    labels = LABELS[task]
    if task == "token":
        return {"tokens": words, "tags": draw.choice(labels, len(words)).tolist()}
    text = " ".join(words)
    if task == "regression":
        return {"text": text, "score": float(draw.normal())}
    if task == "multi_label":
        return {"text": text, "labels": [name for name in labels if draw.random() < 0.5]}
    return {"text": text, "label": str(draw.choice(labels))}
