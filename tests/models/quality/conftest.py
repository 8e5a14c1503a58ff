"""Bundles whose exits mostly agree, and files of random texts for them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from serve.rules.traits import Task
from tests.serve.support.task_bundles import LABELS, Kind, write_task_bundle
from tests.support.tiny import WORDS

MakeBundle = Callable[..., Path]
MakeData = Callable[..., Path]


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
