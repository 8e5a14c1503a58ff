"""Rules at equal mean depths, where they are not of one label: STS-B (BERxiT), and entities."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.experiments.context import Context
from models.experiments.figures import Column, by_column, table, verdict
from models.experiments.page import Section
from models.experiments.run import Run
from models.experiments.sections.recipes import runs_of
from models.experiments.tried import Tried, halves
from models.quality.points import STATIC
from models.quality.recorded import Recorded
from models.quality.rule_families import ENTROPY, LEARNED, PATIENCE, rule_families, tolerances
from serve.rules import ExitRule

# Shares of the depth at which rules are compared.
SHARES = (1 / 2, 2 / 3, 5 / 6)
_COLUMNS = [Column(f"at {share:.0%} of the layers") for share in SHARES]
LEAST_SURE = "entropy of the least sure token"

# (depths,) a rule's metric by its name.
Scores: TypeAlias = Mapping[str, NDArray[np.float64]]


# The rules of a table in words; the first one is compared with the others.
SIMILARITY = {
    LEARNED: "learned error (BERxiT)",
    PATIENCE: "patience (PABEE), tuned",
    STATIC: "stop at the same layer",
}
ENTITIES = {
    ENTROPY: "mean entropy of the tokens",
    LEAST_SURE: LEAST_SURE,
    PATIENCE: "patience (PABEE)",
    STATIC: "stop at the same layer",
}


def at_depths(recorded: Recorded, rules: Sequence[str]) -> Scores:
    """Return each rule's metric at the depths, the mean of both halves of the texts.

    Patience with a tolerance is that which is best at the depth on the other half.
    """
    ways = []
    for one, other in halves(recorded):
        tuning, measured = _tried(one, rules), _tried(other, rules)
        ways.append([[_at(measured, _best(tuning, rule, s), s) for s in SHARES] for rule in rules])
    return dict(zip(rules, np.mean(ways, axis=0), strict=True))


def _tried(recorded: Recorded, rules: Sequence[str]) -> Tried:
    known = rule_families(recorded)
    families: dict[str, Sequence[ExitRule]] = {n: known[n] for n in rules if n in known}
    if recorded.traits.task == "regression":
        del families[PATIENCE]
        for patience in range(1, len(recorded.traits.exits) - 1):
            families[f"{PATIENCE} {patience}"] = tolerances(recorded, patience)
    return Tried(recorded, families, samples=0)


def _best(tuning: Tried, rule: str, share: float) -> str:
    if rule in tuning.points:
        return rule
    own = [name for name in tuning.points if name.startswith(f"{rule} ")]
    return max(own, key=lambda name: np.nan_to_num(_at(tuning, name, share), nan=-np.inf))


def _at(tried: Tried, family: str, share: float) -> float:
    found = tried.at(family, tried.depth * share)
    return float("nan") if found is None else found.value


def tables(found: Mapping[str, Sequence[Scores]], names: Mapping[str, str]) -> Iterator[str]:
    """Yield the table, and what it shows of the first rule against each other one.

    Args:
        found: by recipe, the metrics of each seed's model.
        names: of the rules, in words.
    """
    grid = {
        (recipe, rule): by_column([model[rule] for model in models])
        for recipe, models in found.items()
        for rule in names
    }
    rows: list[list[Any]] = [[recipe, names[rule], *each] for (recipe, rule), each in grid.items()]
    yield table(["recipe", "rule", *_COLUMNS], rows)
    first, *others = names
    for other in others:
        gaps = {
            f"{recipe} at {share:.0%}": grid[recipe, first][place] - grid[recipe, other][place]
            for recipe in found
            for place, share in enumerate(SHARES)
        }
        known = {name: gap for name, gap in gaps.items() if np.isfinite(gap.value)}
        yield verdict(f"The {names[first]} less {names[other]}", known, _COLUMNS[0])


def section(
    title: str, about: str, recipes: Mapping[str, Sequence[Run]], names: Mapping[str, str]
) -> Section:
    """Return a section whose runs are trained seed after seed."""

    def write(context: Context) -> Iterator[str]:
        found = {
            recipe: [at_depths(context.measured(run).recorded, list(names)) for run in runs]
            for recipe, runs in recipes.items()
        }
        yield from tables(found, names)

    runs = [run for seed in zip(*recipes.values(), strict=True) for run in seed]
    return Section(title, about, write, tuple(runs))


BERXIT = section(
    "BERxiT: learned exits on STS-B",
    "Pearson's correlation x 100 on STS-B at three mean depths, MiniLM with six exits. As BERxiT "
    "does, patience and its tolerance are tuned for each depth on one half of the texts, and all "
    "rules are measured on the other half, both ways. Patience k - 1 with a large tolerance stops "
    "at layer k.",
    {
        "joint": runs_of(("--learn-error",), "stsb"),
        "alternating": runs_of(("--recipe", "alternating", "--learn-error"), "stsb"),
    },
    SIMILARITY,
)
TAGGER = section(
    "Entities: entropy of tokens on WNUT-17",
    "F1 of whole entities in % on WNUT-17 at three mean depths, MiniLM with six exits, five "
    "passes. A text leaves with all its tags: by the mean of its tokens' entropies, by that of the "
    "least sure token, or once so many exits in a row give all words the same tags. The mean of "
    "both halves of the texts.",
    {"joint": runs_of((), "wnut17")},
    ENTITIES,
)
