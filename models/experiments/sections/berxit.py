"""BERxiT (Xin et al. 2021): similarity of sentences, which leave by their predicted error."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from models.experiments.figures import Mean, difference
from models.experiments.run import SEEDS, Run
from models.experiments.section import Context, Section
from models.experiments.sections.tried import Tried
from models.quality.page import table
from models.quality.points import STATIC
from models.quality.recorded import Recorded
from models.quality.rule_families import LEARNED, PATIENCE, rule_families, tolerances

RECIPES = {
    "joint": Run.with_seeds("learn-error", "stsb", options=("--learn-error",)),
    "alternating": Run.with_seeds(
        "recipe-alternating-learn-error",
        "stsb",
        options=("--recipe", "alternating", "--learn-error"),
    ),
}
# Shares of the depth at which rules are compared.
SHARES = (1 / 2, 2 / 3, 5 / 6)
NAMES = {
    STATIC: "stop at the same layer",
    PATIENCE: "patience (PABEE), tuned",
    LEARNED: "learned error (BERxiT)",
}

_ABOUT = (
    "Pearson's correlation x 100 on STS-B at three mean depths, MiniLM with six exits. As BERxiT "
    "does, patience and its tolerance are tuned: on one half of the texts the patience is chosen "
    "that is best at the depth, and all rules are measured on the other half, both ways. Patience "
    "k - 1 with a large tolerance stops at layer k."
)

# One model's metrics by rule, at each of the depths.
Scores = Mapping[str, NDArray[np.float64]]


def write(context: Context) -> str:
    """Return the table, and what it shows of the learned error."""
    found = {
        recipe: [at_depths(context.recorded(run)) for run in runs]
        for recipe, runs in RECIPES.items()
    }
    head = ["recipe", "rule", *(f"at {share:.0%} of the layers" for share in SHARES)]
    rows = [
        [recipe, name, *(Mean.of(values).shown() for values in _by_share(rule, models))]
        for recipe, models in found.items()
        for rule, name in NAMES.items()
    ]
    words = " ".join(sentence(found, other) for other in (PATIENCE, STATIC))
    return "\n\n".join([_ABOUT, table(head, rows), words])


SECTION = Section(
    "BERxiT: learned exits on STS-B",
    tuple(run for place in range(len(SEEDS)) for run in (r[place] for r in RECIPES.values())),
    write,
)


def at_depths(recorded: Recorded) -> Scores:
    """Return each rule's metric at the depths, the mean of both halves of the texts."""
    rows = np.arange(recorded.num_rows)
    one, other = (_tried(recorded.of(rows[rows % 2 == side])) for side in (0, 1))
    ways = [_measured(one, other), _measured(other, one)]
    return {rule: np.mean([way[rule] for way in ways], axis=0) for rule in NAMES}


def sentence(found: Mapping[str, Sequence[Scores]], other: str) -> str:
    """Return in which cells the learned error is shown to be better or worse than another rule."""
    gaps = [
        difference(learned.tolist(), others.tolist())
        for models in found.values()
        for learned, others in zip(
            _by_share(LEARNED, models), _by_share(other, models), strict=True
        )
    ]
    better = sum(gap.differs and gap.value > 0 for gap in gaps)
    worse = sum(gap.differs and gap.value < 0 for gap in gaps)
    higher = sum(gap.value > 0 for gap in gaps)
    return (
        f"Against {NAMES[other].split(' (')[0]}, the learned error has the higher mean in {higher} "
        f"of {len(gaps)} cells; it is shown to be better in {better} and worse in {worse}."
    )


def _tried(recorded: Recorded) -> Tried:
    """Try the learned error, and every patience that may leave early with many tolerances."""
    families = {LEARNED: rule_families(recorded)[LEARNED]}
    for patience in range(1, len(recorded.traits.exits) - 1):
        families[f"{PATIENCE} {patience}"] = tolerances(recorded, patience)
    return Tried(recorded, families)


def _measured(tuning: Tried, other: Tried) -> Scores:
    """Return the metrics on the other half, by rule."""
    best = [
        max(
            (name for name in tuning.points if name.startswith(PATIENCE)),
            key=lambda name: _at(tuning, name, share),
        )
        for share in SHARES
    ]
    return {
        STATIC: np.array([_at(other, STATIC, share) for share in SHARES]),
        PATIENCE: np.array([_at(other, *each) for each in zip(best, SHARES, strict=True)]),
        LEARNED: np.array([_at(other, LEARNED, share) for share in SHARES]),
    }


def _at(tried: Tried, family: str, share: float) -> float:
    found = tried.at(family, tried.depth * share)
    return -np.inf if found is None else found.value


def _by_share(rule: str, models: Sequence[Scores]) -> NDArray[np.float64]:
    """Return (depths, models) a rule's metric."""
    return np.stack([model[rule] for model in models], axis=1)
