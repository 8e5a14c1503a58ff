"""What all exits of a model say of some texts, kept on disk."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from models.data.examples import Example
from models.quality.costs import RowCost
from models.quality.data import read_for
from models.quality.model import open_models
from models.quality.recorded import Recorded, inputs, recorded
from serve.bundle.loader import CALIBRATION, sha256_of
from serve.rules.traits import Traits

_PRECISION = "fp32"
_NAMED = (CALIBRATION, "config.json", "tokenizer.json")
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt")


class Measured(NamedTuple):
    """What a model says, and what that costs.

    Attributes:
        recorded: with the correct answers.
        costs: by unit: layers and operations.
    """

    recorded: Recorded
    costs: Mapping[str, RowCost]


def measured(folder: Path, data: Sequence[Path], kept: Path) -> Measured:
    """Run labelled texts through all exits in fp32, or read what that has given before.

    Args:
        folder: a model folder or a checkpoint.
        data: files that are taken together.
        kept: the folder for what is kept; the same files of model and data find it again.
    """
    path = kept / f"{folder.name}-{_key(folder, data)[:16]}.npz"
    if not path.is_file():
        kept.mkdir(parents=True, exist_ok=True)
        _write(path, _run(folder, data))
    return _read(path)


def examples_of(data: Sequence[Path], traits: Traits) -> list[Example]:
    """Return the rows of files that are taken together."""
    return [example for path in data for example in read_for(path, traits).examples]


def _key(folder: Path, data: Sequence[Path]) -> str:
    files = [folder / name for name in _NAMED if (folder / name).is_file()]
    files += sorted(path for pattern in _WEIGHTS for path in folder.glob(pattern))
    parts = [_PRECISION, *(sha256_of(path) for path in [*files, *data])]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _run(folder: Path, data: Sequence[Path]) -> Measured:
    (model,) = open_models([folder], [_PRECISION])
    traits = model.source.traits
    found = recorded(model.source, *inputs(examples_of(data, traits)))
    costs = model.costs(found.num_tokens)
    return Measured(found, {k: each for k, each in costs.items() if isinstance(each, RowCost)})


def _write(path: Path, found: Measured) -> None:
    said = found.recorded
    arrays: dict[str, Any] = {
        "logits": said.logits,
        "num_tokens": said.num_tokens,
        "gold": said.gold,
        "counted": said.counted,
        "uncertainty": said.uncertainty,
        "temperatures": np.array(said.temperatures),
        "traits": np.array(json.dumps(asdict(said.traits))),
        **{f"cost {unit}": np.stack([cost.run, cost.asked]) for unit, cost in found.costs.items()},
    }
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, **{name: each for name, each in arrays.items() if each is not None})
    partial.replace(path)


def _read(path: Path) -> Measured:
    with np.load(path) as file:
        arrays: dict[str, Any] = dict(file)
    said = Recorded(
        _traits(json.loads(str(arrays["traits"]))),
        tuple(arrays["temperatures"].tolist()),
        arrays["logits"],
        arrays.get("counted"),
        arrays.get("uncertainty"),
        num_tokens=arrays["num_tokens"],
        gold=arrays["gold"],
    )
    costs = {k.removeprefix("cost "): RowCost(*v) for k, v in arrays.items() if k[:5] == "cost "}
    return Measured(said, costs)


def _traits(stored: dict[str, Any]) -> Traits:
    scores = stored["score_temperatures"]
    tuples = {name: tuple(stored[name]) for name in ("exits", "labels")}
    tuples["score_temperatures"] = scores and tuple(map(tuple, scores))
    return Traits(**stored | tuples)
