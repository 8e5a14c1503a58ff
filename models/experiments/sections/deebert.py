"""DeeBERT (Xin et al. 2020): what accuracy is lost at which time saved, by entropy."""

import math
from collections.abc import Iterator, Mapping

from models.experiments.context import Context, data_of
from models.experiments.figures import Column, Figure, table, verdict
from models.experiments.page import Section
from models.experiments.run import DataName
from models.experiments.tried import Tried, threshold_at
from models.quality.costs import MS
from models.quality.model import open_models
from models.quality.points import STATIC
from models.quality.recorded import Recorded
from models.quality.rule_families import ENTROPY
from serve.rules import EntropyRule

# Table 1 of the paper, of BERT-base: by percent of the time saved, points on GLUE's test sets.
PUBLISHED: Mapping[DataName, Mapping[int, float]] = {
    "sst2": {21: -0.2, 40: -0.6, 47: -2.1},
    "mrpc": {14: -0.3, 31: -1.3, 44: -3.0},
    "rte": {9: -0.4, 11: -0.6, 33: -3.2},
}

_ABOUT = (
    "The entropy threshold is that which runs so much fewer layers as the paper saved time. Our "
    "time is that of a lone text of the data's mean length in fp32, as the server measures it for "
    "each exit. Accuracy is less full depth's. DeeBERT's points are of BERT-base, trained in two "
    "stages, on GLUE's test sets (F1 for MRPC). RoBERTa-base is not tried: "
    "no package of the registries that the models come from holds a RoBERTa encoder."
)
_LOST = Column("accuracy, points", digits=2, signed=True)
_HEAD = ("model", "layers saved %", "time saved %", _LOST, "DeeBERT, points")


def write(context: Context) -> Iterator[str]:
    """Yield a table of the models that are there, and which differences are shown."""
    rows, gaps = [], dict[str, Figure]()
    for model in SECTION.there(context):
        published = PUBLISHED[data_of(model)]
        for (saved, points), (time_saved, lost) in zip(
            published.items(), points_of(context, model), strict=True
        ):
            rows.append([model, saved, f"{100 * time_saved:.1f}", lost, f"{points:+.1f}"])
            gaps[f"{model} at {saved} %"] = lost
    yield table(_HEAD, rows)
    yield verdict("Accuracy less full depth's", gaps, _LOST)


SECTION = Section(
    "DeeBERT: accuracy against time saved",
    _ABOUT,
    write,
    models=("sst2-mpnet", "sst2-minilm", "mrpc-mpnet", "rte-mpnet"),
    exported=True,
)


def points_of(context: Context, model: str) -> list[tuple[float, Figure]]:
    """Return the share of the time saved, and accuracy less full depth's, at the paper's points."""
    recorded = context.measured(model).recorded
    (served,) = open_models([context.bundles / model], ["fp32"])
    saved = (each / 100 for each in PUBLISHED[data_of(model)])
    rules = [EntropyRule(threshold=threshold_saving(recorded, share)) for share in saved]
    tried = Tried(recorded, {ENTROPY: rules}, served.costs(recorded.num_tokens))
    full_ms = tried.points[STATIC][-1].costs[MS]
    return [(1 - p.costs[MS] / full_ms, tried.of(p) - tried.full) for p in tried.points[ENTROPY]]


def threshold_saving(recorded: Recorded, share: float) -> float:
    """Return the entropy below which texts leave that saves this share of layers, or just less."""
    traits = recorded.traits
    most = math.log(len(traits.labels)) + 1e-3
    wanted = traits.exits[-1] * (1 - share)
    return threshold_at(recorded, lambda t: EntropyRule(threshold=t), wanted, most)
