"""DeeBERT (Xin et al. 2020): what accuracy is lost at which time saved, by entropy."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.experiments.context import Context, data_of
from models.experiments.figures import Column, Figure, table, verdict
from models.experiments.page import Section
from models.experiments.run import DataName
from models.experiments.tried import Tried, threshold_at
from models.quality.data import read_for
from models.quality.points import SAMPLES
from models.quality.recorded import Recorded, inputs
from models.quality.rule_families import ENTROPY
from models.quality.source import BundleSource
from models.quality.style import spread
from serve.bundle.loader import load_bundle
from serve.engine.core import EngineCore
from serve.engine.row import Row
from serve.engine.scheduler import BatchLimits
from serve.engine.shape import ModelShape
from serve.rules import CompiledRule, EntropyRule, ExitRule, NeverRule
from serve.rules.traits import Traits
from serve.runtime.placement import Placement, build_runner
from serve.tokenization.tokenizer import Text, Tokens

# Table 1 of the paper, of BERT-base: by percent of the time saved, points on GLUE's test sets.
PUBLISHED: Mapping[DataName, Mapping[int, float]] = {
    "sst2": {21: -0.2, 40: -0.6, 47: -2.1},
    "mrpc": {14: -0.3, 31: -1.3, 44: -3.0},
    "rte": {9: -0.4, 11: -0.6, 33: -3.2},
}
TIMED_TEXTS = 150
_TURNS = 2

_ABOUT = (
    "The entropy threshold is that which runs so much fewer layers as the paper saved time. "
    "Our time is that of a lone text in fp32 on one thread, through the server's engine, in "
    f"turns with `never` on {TIMED_TEXTS} of the texts. Accuracy is less full depth's. "
    "DeeBERT's points are of BERT-base, trained in two stages, on GLUE's test sets (F1 for "
    "MRPC). The table's other half, RoBERTa-base, is not tried: no package of the registries that "
    "the models come from holds a RoBERTa encoder."
)
_LOST = Column("accuracy, points", digits=2, signed=True)
_HEAD = ("model", "layers saved %", Column("time saved %"), _LOST, "DeeBERT, points")


def write(context: Context) -> Iterator[str]:
    """Yield a table of the models that are there, and which differences are shown."""
    rows, gaps = [], dict[str, Figure]()
    for model in SECTION.there(context):
        published = PUBLISHED[data_of(model)]
        for (saved, points), (time_saved, lost) in zip(
            published.items(), points_of(context, model), strict=True
        ):
            rows.append([model, saved, time_saved, lost, f"{points:+.1f}"])
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


def points_of(context: Context, model: str) -> list[tuple[Figure, Figure]]:
    """Return the time saved, and accuracy less full depth's, at the paper's three points."""
    recorded, saved = context.measured(model).recorded, PUBLISHED[data_of(model)]
    rules = [EntropyRule(threshold=threshold_saving(recorded, each / 100)) for each in saved]
    texts = texts_of(context, model, recorded.traits)
    timed = [texts[place] for place in spread(len(texts), TIMED_TEXTS)]
    seconds = seconds_in_turns(context.bundles / model, [NeverRule(), *rules], timed)
    tried = Tried(recorded, {ENTROPY: rules})
    lost = [tried.of(point) - tried.full for point in tried.points[ENTROPY]]
    return list(zip(time_saved(seconds), lost, strict=True))


def texts_of(context: Context, model: str, traits: Traits) -> list[Text]:
    """Return the texts that a zoo model is measured on."""
    files = context.files(data_of(model))
    return inputs([each for path in files for each in read_for(path, traits).examples])[0]


def threshold_saving(recorded: Recorded, share: float) -> float:
    """Return the entropy below which texts leave that saves this share of layers, or just less."""
    traits = recorded.traits
    most = math.log(len(traits.labels)) + 1e-3
    wanted = traits.exits[-1] * (1 - share)
    return threshold_at(recorded, lambda t: EntropyRule(threshold=t), wanted, most)


def time_saved(seconds: NDArray[np.float64], seed: int = 0) -> list[Figure]:
    """Return the share of the time that each rule saves against the first one.

    Args:
        seconds: (rules, texts) of which the first rule runs all layers.
        seed: of the bootstrap's draws of texts.
    """
    count = seconds.shape[1]
    drawn = np.random.default_rng(seed).integers(count, size=(SAMPLES, count))
    sums = np.vstack([seconds.sum(axis=1), seconds[:, drawn].sum(axis=2).T])
    return [Figure(1 - sums[:, place] / sums[:, 0], count) for place in range(1, len(seconds))]


def seconds_in_turns(
    bundle: Path, rules: Sequence[ExitRule], texts: Sequence[Text]
) -> NDArray[np.float64]:
    """Return (rules, texts) seconds from tokens to answer, through the server's engine.

    Every text runs alone, in fp32, under one rule after the other, so that a busy moment of the
    machine meets all rules alike; the faster of two turns counts. Exits have no temperatures, as
    in the papers.

    Args:
        bundle: an exported model.
        rules: tried in this order, and in the opposite order in the next turn.
        texts: to be answered.
    """
    source = BundleSource(load_bundle(bundle), Placement("cpu", "fp32"))
    shape = ModelShape(source.traits, (1.0,) * len(source.traits.exits), source.pad_id)
    runner = build_runner(source.bundle, source.placement, 1)
    core = EngineCore(
        runner, shape, BatchLimits(), time.monotonic, lambda stats: None, lambda: False
    )
    compiled, tokens = [shape.compile(rule) for rule in rules], source.read(texts)
    for rule in compiled:
        _answer(core, rule, tokens[0])
    found = np.full((len(rules), len(texts)), np.inf)
    for turn in range(_TURNS):
        order = range(len(rules))[:: 1 if turn % 2 == 0 else -1]
        for place, each in enumerate(tokens):
            for index in order:
                taken_s = _answer(core, compiled[index], each)
                found[index, place] = min(found[index, place], taken_s)
    return found


def _answer(core: EngineCore, rule: CompiledRule, tokens: Tokens) -> float:
    began = time.perf_counter()
    core.add([Row(tokens.input_ids, tokens.token_type_ids, rule, admitted_s=time.monotonic())])
    while core:
        core.step()
    return time.perf_counter() - began
