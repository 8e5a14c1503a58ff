"""ElasticBERT (Liu et al. 2022): entropy against patience, by ELUE's score."""

from collections.abc import Mapping, Sequence

from models.elue.score import EluScore, Place, elue_score
from models.experiments.figures import Mean, difference
from models.experiments.recipe_table import Row
from models.experiments.recipes import run_of
from models.experiments.reference_curve import METRICS, static
from models.experiments.run import SEEDS, DataName, Run
from models.experiments.section import Context, Section
from models.quality.costs import MFLOPS, Costs
from models.quality.page import table
from models.quality.recorded import Recorded
from models.quality.scores import benchmark_scores
from serve.rules import EntropyRule, ExitRule, NeverRule, PatienceRule

RECIPE = Row("gradient-equilibrium", ("--recipe", "gradient-equilibrium"))
DATA: tuple[DataName, ...] = ("sst2", "mrpc")
# The settings of ElasticBERT's scripts; its patiences are 2 to 7 of twelve exits.
RULES: Mapping[str, Sequence[ExitRule]] = {
    "entropy": [EntropyRule(threshold=threshold) for threshold in (0.3, 0.4, 0.5)],
    "patience": [PatienceRule(patience=patience) for patience in (2, 3, 4)],
}
_PUBLISHED: Mapping[tuple[DataName, str], float] = {
    ("sst2", "entropy"): 0.96,
    ("sst2", "patience"): 0.37,
    ("mrpc", "entropy"): -0.22,
    ("mrpc", "patience"): -1.04,
}

_ABOUT = (
    "ELUE's score is the mean distance of a rule's operating points to a static model with as many "
    "operations, in points. Ours are to the static MiniLM above, the paper's to ElasticBERT-BASE "
    "with twelve layers; both are trained with gradient equilibrium. Entropy is below 0.3, 0.4 and "
    "0.5; patience is 2, 3 and 4."
)
_HEAD = ["data", "rule", "ELUE score", "points outside the curve", "ElasticBERT-BASE"]


def write(context: Context) -> str:
    """Return the table, and a sentence for each data set."""
    rows, sentences = list[list[str]](), []
    for data in DATA:
        scores = _scores(context, data)
        rows += [_cells(data, rule, found) for rule, found in scores.items()]
        sentences.append(sentence(data, scores))
    return "\n\n".join([_ABOUT, table(_HEAD, rows), " ".join(sentences)])


SECTION = Section(
    "ElasticBERT: entropy against patience, by ELUE's score",
    tuple(
        run
        for data in DATA
        for seed in SEEDS
        for run in (run_of(RECIPE, seed, data), *static(data, seed))
    ),
    write,
)


def places(recorded: Recorded, costs: Costs, rules: Sequence[ExitRule], metric: str) -> list[Place]:
    """Return MFLOPs and performance, in points, of each rule."""
    assert recorded.gold is not None
    found = []
    for rule in rules:
        taken = recorded.taken(rule)
        mflops = costs[MFLOPS].of(taken.exits, recorded.compiled(rule)).mean()
        scores = benchmark_scores(recorded.traits, recorded.gold, taken.deciding)
        found.append((float(mflops), 100 * scores[metric]))
    return found


def sentence(data: DataName, scores: Mapping[str, Sequence[EluScore]]) -> str:
    """Return which rule is shown to be better."""
    entropy, patience = ([each.score for each in scores[rule]] for rule in RULES)
    gap = difference(entropy, patience)
    which = "entropy" if gap.value > 0 else "patience"
    verdict = f"shows {which} to be better" if gap.differs else "shows no difference of the two"
    return f"On {data} the comparison by seed {verdict} ({gap.shown(1.0, 2)} points)."


def _scores(context: Context, data: DataName) -> dict[str, list[EluScore]]:
    def of_run(run: Run, rules: Sequence[ExitRule]) -> list[Place]:
        return places(context.recorded(run), context.costs(run), rules, METRICS[data])

    cut = [run for seed in SEEDS for run in static(data, seed)]
    reference = [place for run in cut for place in of_run(run, [NeverRule()])]
    runs = [run_of(RECIPE, seed, data) for seed in SEEDS]
    return {
        name: [elue_score(of_run(run, rules), reference) for run in runs]
        for name, rules in RULES.items()
    }


def _cells(data: DataName, rule: str, found: Sequence[EluScore]) -> list[str]:
    outside = sum(each.clamped for each in found)
    count = len(found) * len(RULES[rule])
    score = Mean.of([each.score for each in found]).shown(1.0, 2)
    return [data, rule, score, f"{outside} of {count}", f"{_PUBLISHED[data, rule]:+.2f}"]
