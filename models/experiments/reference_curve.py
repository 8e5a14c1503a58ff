"""Static MiniLM of one to six layers: the curve that ELUE's score is reckoned from."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
from matplotlib.figure import Figure

from models.elue.score import curve
from models.experiments.budgets import BUDGETS
from models.experiments.recipes import DEPTHS
from models.experiments.run import SEEDS, DataName, Run
from models.experiments.section import Context, Section
from models.quality.costs import MFLOPS
from models.quality.scores import ACCURACY_F1, CORRELATIONS, benchmark_scores
from models.quality.style import COLOURS, STYLE, new_figure
from serve.bundle.loader import sha256_of
from serve.rules import NeverRule

# ELUE's metric of each task.
METRICS: Mapping[DataName, str] = {"sst2": "accuracy", "mrpc": ACCURACY_F1, "stsb": CORRELATIONS}
_TITLES = {
    "accuracy": "accuracy in %",
    ACCURACY_F1: "(accuracy + F1) / 2 in %",
    CORRELATIONS: "(Pearson + Spearman) / 2 x 100",
}
# As `offramp evaluate` writes it.
Point: TypeAlias = Mapping[str, Any]
_ABOUT = (
    "MiniLM cut to its first layers, with one exit after the last of them, trained like all other "
    "models here (`train --layers K`). `offramp elue score REPORT --reference {file}` tells a "
    "model's distance to this curve at as many operations."
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
            "task": context.recorded(static(data, seed)[0]).traits.task,
            "data": {
                "name": BUDGETS[data].measured[0],
                "task": data,
                "sha256": _sha256(context.data(data)),
            },
            "rules": {"families": {"static": [_point(run, context) for run in static(data, seed)]}},
        }
        for data in METRICS
        for seed in SEEDS
    ]
    return {"facts": {"what": "MiniLM of one to six layers, trained as such"}, "models": models}


def _sha256(files: Sequence[Path]) -> str:
    """Return the hash of a file as reports have it, or one of several files together."""
    hashes = [sha256_of(path) for path in files]
    return hashes[0] if len(hashes) == 1 else sha256("\n".join(hashes).encode()).hexdigest()


def _point(run: Run, context: Context) -> dict[str, Any]:
    """Return metrics and costs of a static model when it answers all texts."""
    recorded, rule = context.recorded(run), NeverRule()
    assert recorded.gold is not None
    taken, compiled = recorded.taken(rule), recorded.compiled(rule)
    costs = context.costs(run).items()
    return {
        "rule": {"rule": "never"},
        "metrics": benchmark_scores(recorded.traits, recorded.gold, recorded.logits[-1]),
        "costs": {unit: float(cost.of(taken.exits, compiled).mean()) for unit, cost in costs},
    }


def draw(points: Mapping[DataName, Sequence[Point]]) -> Figure:
    """Draw each task's points, and the line through their means, against MFLOPs."""
    figure = new_figure((9.0, 3.2))
    panels = figure.subplots(1, len(points), squeeze=False)[0]
    for axes, (data, found), colour in zip(panels, points.items(), COLOURS, strict=False):
        places = [(p["costs"][MFLOPS], 100 * p["metrics"][METRICS[data]]) for p in found]
        axes.plot(*zip(*curve(places), strict=True), color=colour)
        axes.plot(*zip(*places, strict=True), ".", color=colour, alpha=0.6)
        axes.set_title(data)
        axes.set_xlabel("mean MFLOPs per text")
        axes.set_ylabel(_TITLES[METRICS[data]])
        axes.set_xlim(left=0)
    return figure


def _write(context: Context) -> str:
    found = reference(context)
    file = context.places.page.parent / "reference" / "minilm-elue.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    points = {data: _points(found, data) for data in METRICS}
    with mpl.rc_context(STYLE):
        caption = "Static MiniLM of one to six layers; a dot is one seed, the line their mean."
        picture = context.picture("reference-curve", draw(points), caption)
    return "\n\n".join([_ABOUT.format(file=file), picture])


def _points(found: Mapping[str, Any], data: DataName) -> list[Point]:
    models = [model for model in found["models"] if model["data"]["task"] == data]
    return [point for model in models for point in model["rules"]["families"]["static"]]


REFERENCE = Section(
    "A reference curve for ELUE's score",
    tuple(run for data in METRICS for seed in SEEDS for run in static(data, seed)),
    _write,
)
