"""PABEE (Zhou et al. 2020) and voting (Sun et al. 2021): exits that agree, at equal speed."""

from collections.abc import Mapping
from typing import NamedTuple

from models.experiments.section import Context, Section
from models.experiments.sections.models import MRPC_MPNET, SST2_MINILM, SST2_MPNET, not_there
from models.experiments.sections.sampled import Sampled
from models.experiments.sections.tried import Tried
from models.quality.page import table
from models.quality.points import STATIC
from models.quality.recorded import Recorded
from models.quality.rule_families import ENTROPY, PATIENCE, rule_families
from serve.rules.traits import listed

MODELS = (SST2_MPNET, SST2_MINILM, MRPC_MPNET)
SPEED = 1.5
VOTING = "voting"
NAMES = {
    STATIC: "stop at the same layer",
    ENTROPY: "entropy (DeeBERT)",
    PATIENCE: "patience (PABEE)",
    VOTING: "voting (Sun et al.)",
}

_ABOUT = (
    f"Accuracy less full depth's, in points, at {SPEED} times fewer layers in the mean; "
    "between two settings of a rule, some texts follow the one and the others the other."
)


class AtSpeed(NamedTuple):
    """A rule at a mean depth.

    Attributes:
        score: the main metric; None if the rule does not reach the depth.
        gained: that less full depth's.
    """

    score: Sampled
    gained: Sampled


def write(context: Context) -> str:
    """Return a table of all models that are there, and a sentence for each."""
    blocks, cells, sentences = [_ABOUT], dict[str, dict[str, str]](), []
    for model in MODELS:
        if model.is_trained(context):
            recorded = model.recorded(context)
            found = at_speed(recorded)
            cells[model.name] = {
                name: each.gained.change(recorded.num_rows) for name, each in found.items()
            }
            sentences.append(sentence(model.name, found))
    if cells:
        rows = [[NAMES[n], *(each.get(n) for each in cells.values())] for n in NAMES]
        blocks += [table(["rule", *cells], rows), " ".join(sentences)]
    return "\n\n".join(block for block in (*blocks, not_there(context, MODELS)) if block)


SECTION = Section("PABEE and voting: agreement of exits at 1.5 times the speed", (), write)


def at_speed(recorded: Recorded, speed: float = SPEED) -> dict[str, AtSpeed]:
    """Return what each rule gives at so many times fewer layers, where it reaches that."""
    families = rule_families(recorded)
    tried = Tried(recorded, {name: families[name] for name in NAMES if name in families})
    found = {name: tried.at(name, tried.depth / speed) for name in tried.points}
    return {name: AtSpeed(s, s - tried.full) for name, s in found.items() if s is not None}


def sentence(name: str, found: Mapping[str, AtSpeed]) -> str:
    """Return which rules are shown to be better or worse than entropy."""
    entropy = found[ENTROPY].score
    gaps = {NAMES[rule]: each.score - entropy for rule, each in found.items() if rule != ENTROPY}
    better = [rule for rule, gap in gaps.items() if gap.shown and gap.value > 0]
    worse = [rule for rule, gap in gaps.items() if gap.shown and gap.value < 0]
    if not better and not worse:
        return f"{name}: no rule is shown to be better or worse than entropy."
    words = [
        f"shown to be {how} than entropy: {listed(rules)}"
        for how, rules in (("better", better), ("worse", worse))
        if rules
    ]
    return f"{name}: {'; '.join(words)}."
