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
from models.quality.page import table
from models.quality.recorded import Recorded, inputs
from models.quality.rule_families import ENTROPY
from models.quality.style import spread
from serve.rules import EntropyRule, ExitRule, NeverRule
from serve.rules.traits import listed


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
MODELS = (SST2_MPNET, SST2_MINILM, MRPC_MPNET, RTE_MPNET)
TIMED_TEXTS = 150
_SAMPLES = 1000

_ABOUT = (
    "The entropy threshold is that which runs so much fewer layers as the paper saved time. "
    "Our time is that of a lone text in fp32 on one thread, through the server's engine, in "
    f"turns with `never` on {TIMED_TEXTS} of the texts. Accuracy is less full depth's. "
    "DeeBERT's points are of BERT-base, trained in two stages, on GLUE's test sets (F1 for "
    "MRPC)."
)


def write(context: Context) -> str:
    """Return a table of all models that are exported, and a sentence."""
    there = [m for m in MODELS if m.is_trained(context) and m.is_exported(context)]
    found = {model.name: points_of(context, model) for model in there}
    blocks = [_ABOUT]
    if found:
        rows = [[name, *point.cells] for name, points in found.items() for point in points]
        blocks += [table(_HEAD, rows), sentence(found)]
    blocks.append(not_there(context, MODELS, exported=True))
    return "\n\n".join(block for block in blocks if block)


SECTION = Section("DeeBERT: accuracy against time saved", (), write)

_HEAD = ["model", "layers saved %", "time saved %", "accuracy, points", "DeeBERT, points"]


class Point(NamedTuple):
    """One threshold.

    Attributes:
        num_texts: that are answered.
        time_saved: share of the time.
        lost: accuracy less full depth's.
        published: the point it stands beside, with as many layers saved as it saved time.
    """

    num_texts: int
    time_saved: Sampled
    lost: Sampled
    published: Published

    @property
    def cells(self) -> list[str]:
        """The cells of the table."""
        return [
            str(self.published.saved),
            self.time_saved.text(digits=1),
            self.lost.change(self.num_texts),
            f"{self.published.lost:+.1f}",
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
        Point(recorded.num_rows, less_time, tried.of(point) - tried.full, paper)
        for point, less_time, paper in zip(tried.points[ENTROPY], saved, published, strict=True)
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


def sentence(found: Mapping[str, Sequence[Point]]) -> str:
    """Return of which models' points a difference to full depth is shown."""
    points = [(name, point) for name, each in found.items() for point in each]
    shown = [f"{name} at {point.published.saved} %" for name, point in points if point.lost.shown]
    return f"A difference to full depth is shown in {len(shown)} of {len(points)} rows" + (
        f": {listed(shown)}." if shown else "."
    )
