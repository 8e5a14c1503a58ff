"""Static MiniLM of one to six layers: the curve that ELUE's score is reckoned from."""

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from models.experiments.context import Context
from models.experiments.figures import Column, by_column, table
from models.experiments.page import Section
from models.experiments.run import BUDGETS, DEPTHS, SEEDS, DataName, Run
from models.quality.costs import LAYERS, MFLOPS
from models.quality.points import STATIC, Trial
from models.quality.scores import ACCURACY_F1, CORRELATIONS
from serve.bundle.loader import sha256_of
from serve.rules import NeverRule

# ELUE's metric of each task.
METRICS: Mapping[DataName, str] = {"sst2": "accuracy", "mrpc": ACCURACY_F1, "stsb": CORRELATIONS}
_HEAD = (
    Column("SST-2: accuracy %"),
    Column("MRPC: (accuracy + F1) / 2 %"),
    Column("STS-B: (Pearson + Spearman) / 2 x 100"),
)
_FILE = "reference/minilm-elue.json"
_ABOUT = (
    "MiniLM cut to its first layers, with one exit after the last of them, trained like all other "
    f"models here (`train --layers K`). `offramp elue score REPORT --reference docs/{_FILE}` tells "
    "a model's distance to this curve at as many operations."
)


def static(data: DataName, seed: int) -> list[Run]:
    """Return the models of one layer, two layers, and so on."""
    layers = range(1, DEPTHS["minilm"] + 1)
    return [Run(f"layers-{k}", data, options=("--layers", str(k)), seed=seed) for k in layers]


def reference(context: Context) -> dict[str, Any]:
    """Return all points in the form of `offramp evaluate`'s report.json, a model for each seed."""
    models = [
        {
            "name": f"minilm on {data}, seed {seed}",
            "task": "regression" if data == "stsb" else "single_label",
            "data": {
                "name": BUDGETS[data].measured[0],
                "task": data,
                "sha256": _sha256(context, data),
            },
            "rules": {"families": {STATIC: [_point(run, context) for run in static(data, seed)]}},
        }
        for data in METRICS
        for seed in SEEDS
    ]
    return {"facts": {"what": "MiniLM of one to six layers, trained as such"}, "models": models}


def reference_table(found: Mapping[str, Any]) -> str:
    """Return the metrics of all depths, and their operations."""
    cells: dict[int, list[Any]] = {}
    for data, metric in METRICS.items():
        models = [model for model in found["models"] if model["data"]["task"] == data]
        seeds = [model["rules"]["families"][STATIC] for model in models]
        figures = by_column([[point["metrics"][metric] for point in seed] for seed in seeds])
        for figure, point in zip(figures, seeds[0], strict=True):
            cells.setdefault(round(point["costs"][LAYERS]), []).extend(
                [figure, f"{point['costs'][MFLOPS]:.0f}"]
            )
    columns = [each for column in _HEAD for each in (column, "MFLOPs")]
    return table(["layers", *columns], [[depth, *each] for depth, each in cells.items()])


def _sha256(context: Context, data: DataName) -> str:
    """Return the hash of a file as reports have it, or one of several files together."""
    hashes = [sha256_of(path) for path in context.files(data)]
    return hashes[0] if len(hashes) == 1 else sha256("\n".join(hashes).encode()).hexdigest()


def _point(run: Run, context: Context) -> dict[str, Any]:
    """Return metrics and costs of a static model when it answers all texts."""
    point = Trial(*context.measured(run)).point(STATIC, NeverRule())
    return {"rule": {"rule": "never"}, "metrics": point.metrics, "costs": point.costs}


def _write(context: Context) -> Iterator[str]:
    found = reference(context)
    file = context.page.parent / _FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    yield reference_table(found)


REFERENCE = Section(
    "A reference curve for ELUE's score",
    _ABOUT,
    _write,
    tuple(run for data in METRICS for seed in SEEDS for run in static(data, seed)),
)
