"""DeeBERT (Xin et al. 2020): what accuracy is lost at which time saved, by entropy."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.experiments.run import DataName
from models.experiments.section import Context, Section
from models.experiments.sections.models import (
    MRPC_MPNET,
    RTE_MPNET,
    SST2_MINILM,
    SST2_MPNET,
    ZooModel,
    examples_of,
    not_there,
)
from models.experiments.sections.sampled import Sampled
from models.experiments.sections.tried import Tried, threshold_at
from models.experiments.sections.turns import seconds_in_turns
from models.quality.card import hundredths
from models.quality.recorded import Recorded, inputs
from models.quality.rule_families import ENTROPY
from models.report.markdown import table
from models.report.style import spread
from serve.rules import EntropyRule, ExitRule, NeverRule


class Published(NamedTuple):
    """A point of the paper: BERT-base on GLUE's test sets, in points and percent of the time."""

    lost: float
    saved: int


# Table 1 of the paper; of MRPC it is F1, else accuracy.
PUBLISHED: Mapping[DataName, tuple[Published, ...]] = {
    "sst2": (Published(-0.2, 21), Published(-0.6, 40), Published(-2.1, 47)),
    "mrpc": (Published(-0.3, 14), Published(-1.3, 31), Published(-3.0, 44)),
    "rte": (Published(-0.4, 9), Published(-0.6, 11), Published(-3.2, 33)),
}
_METRICS: Mapping[DataName, str] = {"sst2": "accuracy", "mrpc": "F1", "rte": "accuracy"}
MODELS = (SST2_MPNET, SST2_MINILM, MRPC_MPNET, RTE_MPNET)
TIMED_TEXTS = 150
_SAMPLES = 1000

_ABOUT = (
    "Texts leave at the first exit whose entropy is below the threshold. For each published point "
    "we take the threshold that runs so much fewer layers as the paper saved time. Time is that of "
    "a lone text in fp32 on one thread, through the server's engine, in turns with `never` on "
    f"{TIMED_TEXTS} of the texts. Ours are differences of accuracy to full depth; brackets are "
    "95 % intervals over texts. The paper's models are BERT-base, trained in two stages, on "
    "GLUE's test sets: another backbone, so the columns compare in kind only."
)


def write(context: Context) -> str:
    """Return a table of all models that are exported, and a sentence."""
    there = [m for m in MODELS if m.is_trained(context) and m.is_exported(context)]
    blocks, rows, sentences = [_ABOUT], [], []
    for model in there:
        points = points_of(context, model)
        rows += [[model.name, *point.cells(model.data)] for point in points]
        sentences.append(sentence(model, points))
    if rows:
        blocks += [table(_HEAD, rows), " ".join(sentences)]
    blocks.append(not_there(context, MODELS, exported=True))
    return "\n\n".join(block for block in blocks if block)


SECTION = Section("DeeBERT: accuracy against time saved", (), write)

_HEAD = [
    "model",
    "entropy below",
    "layers saved %",
    "time saved %",
    "accuracy, points",
    "DeeBERT: time saved %",
    "DeeBERT: points",
]


class Point(NamedTuple):
    """One threshold.

    Attributes:
        threshold: of the entropy.
        layers_saved: share of the layers that do not run.
        time_saved: share of the time.
        lost: accuracy less full depth's.
        published: the point it stands beside.
    """

    threshold: float
    layers_saved: float
    time_saved: Sampled
    lost: Sampled
    published: Published

    def cells(self, data: DataName) -> list[str]:
        """Return the cells of the table."""
        return [
            f"{self.threshold:.3f}",
            f"{100 * self.layers_saved:.1f}",
            self.time_saved.text(digits=1),
            self.lost.text(signed=True),
            str(self.published.saved),
            f"{self.published.lost:+.1f} ({_METRICS[data]})",
        ]


def points_of(context: Context, model: ZooModel) -> list[Point]:
    """Measure a model at the paper's three points."""
    recorded, published = model.recorded(context), PUBLISHED[model.data]
    thresholds = [threshold_saving(recorded, each.saved / 100) for each in published]
    rules: list[ExitRule] = [EntropyRule(threshold=threshold) for threshold in thresholds]
    texts, _ = inputs(examples_of(context, model.data, recorded.traits))
    timed = [texts[place] for place in spread(len(texts), TIMED_TEXTS)]
    saved = time_saved(seconds_in_turns(context.bundle(model.name), [NeverRule(), *rules], timed))
    tried = Tried(recorded, {ENTROPY: rules})
    return [
        Point(
            threshold,
            1 - float(point.layers.mean()) / tried.depth,
            less_time,
            tried.of(point) - tried.full,
            paper,
        )
        for threshold, point, less_time, paper in zip(
            thresholds, tried.points[ENTROPY], saved, published, strict=True
        )
    ]


def threshold_saving(recorded: Recorded, share: float) -> float:
    """Return the entropy below which texts leave that saves this share of layers, or just less."""
    traits = recorded.traits
    most = math.log(len(traits.labels)) + 1e-3
    return threshold_at(
        recorded,
        lambda threshold: EntropyRule(threshold=threshold),
        traits.exits[-1] * (1 - share),
        most,
    )


def time_saved(seconds: NDArray[np.float64], seed: int = 0) -> list[Sampled]:
    """Return the share of the time that each rule saves against the first one.

    Args:
        seconds: (rules, texts) of which the first rule runs all layers.
        seed: of the bootstrap's draws of texts.
    """
    count = seconds.shape[1]
    drawn = np.random.default_rng(seed).integers(count, size=(_SAMPLES, count))
    sums = np.vstack([seconds.sum(axis=1), seconds[:, drawn].sum(axis=2).T])
    return [Sampled(1 - sums[:, place] / sums[:, 0]) for place in range(1, len(seconds))]


def sentence(model: ZooModel, points: Sequence[Point]) -> str:
    """Return what the middle point says."""
    middle = points[len(points) // 2]
    change = middle.lost
    verdict = "shown" if change.shown else "not shown"
    return (
        f"{model.name} saves {100 * middle.time_saved.value:.0f} % of the time at "
        f"{hundredths(change.value, signed=True)} points (a difference is {verdict}); DeeBERT "
        f"saves {middle.published.saved} % at {middle.published.lost:+.1f}."
    )
