"""Exits that agree: PABEE (Zhou et al. 2020), voting and diversity (Sun et al. 2021)."""

from collections.abc import Iterator, Sequence

import numpy as np

from models.experiments.context import Context
from models.experiments.figures import Column, Figure, table, verdict
from models.experiments.page import Section
from models.experiments.run import DataName, Run
from models.experiments.sections.recipes import runs_of
from models.experiments.tried import Tried
from models.quality.points import SAMPLES, STATIC
from models.quality.recorded import Recorded
from models.quality.rule_families import ENTROPY, PATIENCE, rule_families

SPEED = 1.5
VOTING, FULL = "voting", "full depth"
NAMES = {
    STATIC: "stop at the same layer",
    ENTROPY: "entropy (DeeBERT)",
    PATIENCE: "patience (PABEE)",
    VOTING: "voting (Sun et al.)",
}
CHANGE = Column("", digits=2, signed=True)

_ABOUT_PATIENCE = (
    f"Accuracy less full depth's, in points, at {SPEED} times fewer layers in the mean; "
    "between two settings of a rule, some texts follow the one and the others the other."
)


def write_patience(context: Context) -> Iterator[str]:
    """Yield a table of the models that are there, and a sentence for each."""
    found, verdicts = {}, []
    for model in PATIENT.there(context):
        scores = at_speed(context.measured(model).recorded)
        full, entropy = scores.pop(FULL), scores[ENTROPY]
        found[model] = {name: score - full for name, score in scores.items()}
        gaps = {NAMES[n]: score - entropy for n, score in scores.items() if n != ENTROPY}
        verdicts.append(f"* {verdict(f'{model}, less entropy', gaps, CHANGE)}")
    columns = [CHANGE._replace(head=model) for model in found]
    rows = [[words, *(each.get(name) for each in found.values())] for name, words in NAMES.items()]
    yield table(["rule", *columns], rows)
    yield "\n".join(verdicts)


PATIENT = Section(
    "PABEE and voting: agreement of exits at 1.5 times the speed",
    _ABOUT_PATIENCE,
    write_patience,
    models=("sst2-mpnet", "sst2-minilm", "mrpc-mpnet"),
)


def at_speed(recorded: Recorded, samples: int = SAMPLES) -> dict[str, Figure]:
    """Return the accuracy of each rule that is as fast, and that at full depth."""
    families = rule_families(recorded)
    tried = Tried(recorded, {n: families[n] for n in NAMES if n in families}, samples=samples)
    found = {name: tried.at(name, tried.depth / SPEED) for name in tried.points}
    return {FULL: tried.full} | {name: score for name, score in found.items() if score is not None}


DATA: tuple[DataName, ...] = ("sst2", "mrpc")
# Sun et al. state no weight.
WEIGHTS = ("0.1", "0.3", "1")
RULES = (ENTROPY, PATIENCE, VOTING)

_ABOUT_DIVERSITY = (
    f"Accuracy at {SPEED} times fewer layers of MiniLM's six, trained with diversity of three "
    "weights, less that of `joint`, in points, seed by seed. Sun et al. state no weight."
)


def write_diversity(context: Context) -> Iterator[str]:
    """Yield the table, and which of its cells show a change."""
    gaps: dict[tuple[str, str], list[Figure]] = {}
    for data in DATA:
        plain = _scores(context, _runs(None, data))
        for weight in WEIGHTS:
            for rule, own in _scores(context, _runs(weight, data)).items():
                gaps.setdefault((weight, rule), []).append(own - plain[rule])
    columns = [Column(data, digits=2) for data in DATA]
    rows = [[weight, NAMES[rule], *found] for (weight, rule), found in gaps.items()]
    yield table(["weight", "rule", *columns], rows)
    cells = {
        f"{data} by {NAMES[rule]} with {weight}": gap
        for (weight, rule), found in gaps.items()
        for data, gap in zip(DATA, found, strict=True)
    }
    yield verdict("Diversity less `joint`", cells, columns[0])


def _runs(weight: str | None, data: DataName) -> tuple[Run, ...]:
    return runs_of(("--diversity", weight) if weight else (), data)


DIVERSITY = Section(
    "Diversity of exits",
    _ABOUT_DIVERSITY,
    write_diversity,
    tuple(run for data in DATA for weight in (None, *WEIGHTS) for run in _runs(weight, data)),
)


def scores(models: Sequence[Recorded]) -> dict[str, Figure]:
    """Return the accuracy of some seeds at the speed, by rule."""
    found = [at_speed(recorded, samples=0) for recorded in models]
    return {rule: Figure(np.array([each[rule].value for each in found])) for rule in RULES}


def _scores(context: Context, runs: Sequence[Run]) -> dict[str, Figure]:
    return scores([context.measured(run).recorded for run in runs])
