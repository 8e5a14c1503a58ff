"""ELUE's score: static MiniLM as its reference, and ElasticBERT's rules (Liu et al. 2022)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from models.elue.score import EluScore, Place, elue_score
from models.experiments.context import Context
from models.experiments.figures import Column, Figure, by_column, table, verdict
from models.experiments.measured import Measured
from models.experiments.page import Section
from models.experiments.run import BUDGETS, DEPTHS, SEEDS, DataName, Run
from models.experiments.sections.recipes import runs_of
from models.quality.costs import LAYERS, MFLOPS
from models.quality.points import STATIC, Trial
from models.quality.scores import ACCURACY_F1, CORRELATIONS
from serve.bundle.loader import sha256_of
from serve.rules import EntropyRule, ExitRule, NeverRule, PatienceRule

# ELUE's metric of each task.
METRICS: Mapping[DataName, str] = {"sst2": "accuracy", "mrpc": ACCURACY_F1, "stsb": CORRELATIONS}
_HEAD = (
    Column("SST-2: accuracy %"),
    Column("MRPC: (accuracy + F1) / 2 %"),
    Column("STS-B: (Pearson + Spearman) / 2 x 100"),
)
_FILE = "reference/minilm-elue.json"
_ABOUT = (
    "MiniLM cut to its first layers, with one exit, trained like all other models here (`train "
    "--layers K`): what [ELUE's score](elue.md#the-score) compares with."
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


# The settings of ElasticBERT's scripts; its patiences are 2 to 7 of twelve exits.
RULES: Mapping[str, Sequence[ExitRule]] = {
    "entropy": [EntropyRule(threshold=threshold) for threshold in (0.3, 0.4, 0.5)],
    "patience": [PatienceRule(patience=patience) for patience in (2, 3, 4)],
}
_PUBLISHED: Mapping[DataName, Mapping[str, str]] = {
    "sst2": {"entropy": "+0.96", "patience": "+0.37"},
    "mrpc": {"entropy": "-0.22", "patience": "-1.04"},
}
_RUNS = {data: runs_of(("--recipe", "gradient-equilibrium"), data) for data in _PUBLISHED}

_ABOUT_RULES = (
    "ELUE's score is the mean distance of a rule's operating points to a static model with as many "
    "operations, in points. Ours are to the static MiniLM above, the paper's to ElasticBERT-BASE; "
    "both are trained with gradient equilibrium. Entropy is below 0.3, 0.4 and 0.5; patience is 2, "
    "3 and 4."
)
SCORE = Column("ELUE score", 1.0, 2)
_RULES_HEAD = ("data", "rule", SCORE, "points outside the curve", "ElasticBERT-BASE")


def write(context: Context) -> Iterator[str]:
    """Yield the table, and which rule is shown to be better."""
    rows, gaps = [], dict[str, Figure]()
    for data, runs in _RUNS.items():
        scores = _scores(context, data, runs)
        found = {rule: Figure(np.array([s.score for s in each])) for rule, each in scores.items()}
        gaps[data] = found["entropy"] - found["patience"]
        for rule, each in scores.items():
            outside = f"{sum(s.clamped for s in each)} of {len(each) * len(RULES[rule])}"
            rows.append([data, rule, found[rule], outside, _PUBLISHED[data][rule]])
    yield table(_RULES_HEAD, rows)
    yield verdict("Entropy's score less patience's", gaps, SCORE)


ELASTICBERT = Section(
    "ElasticBERT: entropy against patience, by ELUE's score",
    _ABOUT_RULES,
    write,
    tuple(
        run
        for data, runs in _RUNS.items()
        for seed, own in zip(SEEDS, runs, strict=True)
        for run in (own, *static(data, seed))
    ),
)


def places(measured: Measured, rules: Sequence[ExitRule], metric: str) -> list[Place]:
    """Return MFLOPs and performance, in points, of each rule."""
    trial = Trial(*measured)
    points = [trial.point("", rule) for rule in rules]
    return [(point.costs[MFLOPS], 100 * point.metrics[metric]) for point in points]


def _scores(context: Context, data: DataName, runs: Sequence[Run]) -> dict[str, list[EluScore]]:
    def of_run(run: Run, rules: Sequence[ExitRule]) -> list[Place]:
        return places(context.measured(run), rules, METRICS[data])

    cut = [run for seed in SEEDS for run in static(data, seed)]
    reference = [place for run in cut for place in of_run(run, [NeverRule()])]
    return {
        name: [elue_score(of_run(run, rules), reference) for run in runs]
        for name, rules in RULES.items()
    }
