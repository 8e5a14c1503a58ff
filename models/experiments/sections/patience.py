"""PABEE (Zhou et al. 2020) and voting (Sun et al. 2021): exits that agree, at equal speed."""

from collections.abc import Iterator

from models.experiments.context import Context
from models.experiments.figures import Column, Figure, table, verdict
from models.experiments.page import Section
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

_ABOUT = (
    f"Accuracy less full depth's, in points, at {SPEED} times fewer layers in the mean; "
    "between two settings of a rule, some texts follow the one and the others the other."
)


def write(context: Context) -> Iterator[str]:
    """Yield a table of the models that are there, and a sentence for each."""
    found, verdicts = {}, []
    for model in SECTION.there(context):
        scores = at_speed(context.measured(model).recorded)
        full, entropy = scores.pop(FULL), scores[ENTROPY]
        found[model] = {name: score - full for name, score in scores.items()}
        gaps = {NAMES[n]: score - entropy for n, score in scores.items() if n != ENTROPY}
        verdicts.append(f"* {verdict(f'{model}, less entropy', gaps, CHANGE)}")
    columns = [CHANGE._replace(head=model) for model in found]
    rows = [[words, *(each.get(name) for each in found.values())] for name, words in NAMES.items()]
    yield table(["rule", *columns], rows)
    yield "\n".join(verdicts)


SECTION = Section(
    "PABEE and voting: agreement of exits at 1.5 times the speed",
    _ABOUT,
    write,
    models=("sst2-mpnet", "sst2-minilm", "mrpc-mpnet"),
)


def at_speed(recorded: Recorded, samples: int = SAMPLES) -> dict[str, Figure]:
    """Return the accuracy of each rule that is as fast, and that at full depth."""
    families = rule_families(recorded)
    tried = Tried(recorded, {n: families[n] for n in NAMES if n in families}, samples=samples)
    found = {name: tried.at(name, tried.depth / SPEED) for name in tried.points}
    return {FULL: tried.full} | {name: score for name, score in found.items() if score is not None}
