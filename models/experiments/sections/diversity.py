"""Sun et al. 2021: exits trained to differ from each other, under patience and voting."""

from collections.abc import Iterator, Sequence

import numpy as np

from models.experiments.context import Context
from models.experiments.figures import Column, Figure, table, verdict
from models.experiments.page import Section
from models.experiments.run import DataName, Run
from models.experiments.sections.patience import NAMES, SPEED, VOTING, at_speed
from models.experiments.sections.recipes import runs_of
from models.quality.recorded import Recorded
from models.quality.rule_families import ENTROPY, PATIENCE

DATA: tuple[DataName, ...] = ("sst2", "mrpc")
# Sun et al. state no weight.
WEIGHTS = ("0.1", "0.3", "1")
RULES = (ENTROPY, PATIENCE, VOTING)

_ABOUT = (
    f"Accuracy at {SPEED} times fewer layers of MiniLM's six, trained with diversity of three "
    "weights, less that of `joint`, in points, seed by seed. Sun et al. state no weight."
)


def write(context: Context) -> Iterator[str]:
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


SECTION = Section(
    "Diversity of exits",
    _ABOUT,
    write,
    tuple(run for data in DATA for weight in (None, *WEIGHTS) for run in _runs(weight, data)),
)


def scores(models: Sequence[Recorded]) -> dict[str, Figure]:
    """Return the accuracy of some seeds at the speed, by rule."""
    found = [at_speed(recorded, samples=0) for recorded in models]
    return {rule: Figure(np.array([each[rule].value for each in found])) for rule in RULES}


def _scores(context: Context, runs: Sequence[Run]) -> dict[str, Figure]:
    return scores([context.measured(run).recorded for run in runs])
