"""What has been measured of a model, kept on disk, and means over seeds."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from models.quality.costs import LAYERS, RowCost, layer_costs
from models.quality.data import read_for
from models.quality.model import open_models
from models.quality.recorded import Recorded, inputs, recorded
from serve.bundle.loader import CALIBRATION, MANIFEST, sha256_of
from serve.bundle.manifest import Precision
from serve.rules.traits import Traits

LEVEL = 0.95
# A bundle's manifest names the hashes of its files.
_NAMED = (MANIFEST, CALIBRATION, "config.json", "tokenizer.json")
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt")


class Measured(NamedTuple):
    """What all exits of a model say of some texts, and what that costs.

    Attributes:
        recorded: with the correct answers.
        costs: by unit: layers, and of a model folder the operations.
    """

    recorded: Recorded
    costs: Mapping[str, RowCost]


class Mean(NamedTuple):
    """The mean of a figure over seeds.

    Attributes:
        value: the mean.
        half: half the width of its 95 % interval, by Student's t; None of one seed.
    """

    value: float
    half: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Mean":
        """Return the mean of one figure per seed."""
        count = len(values)
        value = float(np.mean(values))
        if count < 2:
            return cls(value, None)
        quantile = float(stats.t.ppf((1 + LEVEL) / 2, count - 1))
        return cls(value, quantile * float(np.std(values, ddof=1)) / count**0.5)

    def shown(self, scale: float = 100.0, digits: int = 1) -> str:
        """Return the mean with its interval in words, such as `87.6 ± 0.5`."""
        text = f"{scale * self.value:.{digits}f}"
        return text if self.half is None else f"{text} ± {scale * self.half:.{digits}f}"

    @property
    def differs(self) -> bool:
        """Whether the interval, of a mean of differences, does not hold 0."""
        return self.half is not None and abs(self.value) > self.half


def difference(ours: Sequence[float], others: Sequence[float]) -> Mean:
    """Return the mean difference of two figures per seed, of the same seeds in the same order."""
    return Mean.of([a - b for a, b in zip(ours, others, strict=True)])


def measured(
    folder: Path, data: Sequence[Path], kept: Path, precision: Precision = "fp32"
) -> Measured:
    """Run labelled texts through all exits, or read what that has given before.

    Args:
        folder: a bundle, a model folder or a checkpoint.
        data: files that are taken together.
        kept: the folder for what is kept; the same files of model and data find it again.
        precision: of a bundle.
    """
    path = kept / f"{folder.name}-{_key(folder, data, precision)[:16]}.npz"
    if path.is_file():
        return _read(path)
    found = _run(folder, data, precision)
    kept.mkdir(parents=True, exist_ok=True)
    _write(path, found)
    return found


def _key(folder: Path, data: Sequence[Path], precision: str) -> str:
    files = [folder / name for name in _NAMED if (folder / name).is_file()]
    if not (folder / MANIFEST).is_file():
        files += sorted(path for pattern in _WEIGHTS for path in folder.glob(pattern))
    parts = [precision, *(sha256_of(path) for path in [*files, *data])]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _run(folder: Path, data: Sequence[Path], precision: str) -> Measured:
    (model,) = open_models([folder], [precision])
    traits = model.source.traits
    examples = [example for path in data for example in read_for(path, traits).examples]
    found = recorded(model.source, *inputs(examples))
    if (folder / MANIFEST).is_file():  # whose costs are times, which are not kept
        return Measured(found, {LAYERS: layer_costs(traits.exits, found.num_rows)})
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
        **{f"cost {unit}": np.stack(cost) for unit, cost in found.costs.items()},
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
