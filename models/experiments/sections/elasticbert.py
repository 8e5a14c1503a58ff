"""ElasticBERT (Liu et al. 2022): entropy against patience, by ELUE's score."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from models.elue.score import EluScore, Place, elue_score
from models.experiments.context import Context
from models.experiments.figures import Column, Figure, table, verdict
from models.experiments.measured import Measured
from models.experiments.page import Section
from models.experiments.run import SEEDS, DataName, Run
from models.experiments.sections.recipes import runs_of
from models.experiments.sections.reference import METRICS, static
from models.quality.costs import MFLOPS
from models.quality.points import Trial
from serve.rules import EntropyRule, ExitRule, NeverRule, PatienceRule

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

_ABOUT = (
    "ELUE's score is the mean distance of a rule's operating points to a static model with as many "
    "operations, in points. Ours are to the static MiniLM above, the paper's to ElasticBERT-BASE "
    "with twelve layers; both are trained with gradient equilibrium. Entropy is below 0.3, 0.4 and "
    "0.5; patience is 2, 3 and 4."
)
SCORE = Column("ELUE score", 1.0, 2)
_HEAD = ("data", "rule", SCORE, "points outside the curve", "ElasticBERT-BASE")


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
    yield table(_HEAD, rows)
    yield verdict("Entropy's score less patience's", gaps, SCORE)


SECTION = Section(
    "ElasticBERT: entropy against patience, by ELUE's score",
    _ABOUT,
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
