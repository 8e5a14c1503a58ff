"""Why layers are redundant: how little answers and hidden states change from layer to layer."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.checkpoints import load
from models.experiments.budgets import ENCODERS
from models.experiments.recipe_table import BASELINE
from models.experiments.recipes import DEPTHS, STAGES, run_of
from models.experiments.run import SEEDS, Run
from models.experiments.section import Context, Section
from models.experiments.sections.models import examples_of
from models.experiments.sections.similarity import States, cka, states_of
from models.multi_exit import MultiExitModel
from models.quality.page import table
from models.quality.recorded import Recorded, inputs
from models.quality.source import TorchSource
from models.quality.style import spread
from serve.tokenization.tokenizer import Tokens

NUM_TEXTS = 200
# Of a layer that adds little: the exit after it changes at most so many answers.
_FEW = 0.01
# `frozen` keeps a classifier as it was fine-tuned without exits, and adds heads that tell what its
# layers know.
_NAMES = {"frozen": "fine-tuned without exits", BASELINE: "trained with all exits"}
_UNTUNED = "encoder before any training"

_ABOUT = (
    f"How alike the hidden states before and after each layer are, on {NUM_TEXTS} texts of SST-2: "
    "by the linear centred kernel alignment (Kornblith et al. 2019, unbiased) of the texts' mean "
    "states, which is 1 where a layer keeps all distances between texts, and by the cosine of each "
    "token's states. The models are those of [two stages or one](#two-stages-or-one-on-sst-2), the "
    "mean of three seeds. A model that was fine-tuned without exits got its heads afterwards, with "
    "all else frozen."
)


class Redundancy(NamedTuple):
    """What each layer changes.

    Attributes:
        changed: (layers,) share of texts with another answer than the exit before; NaN for the
            first layer, and of a model without heads.
        alignment: (layers,) of the states before and after each layer.
        cosine: (layers,) of the same.
    """

    changed: NDArray[np.float64]
    alignment: NDArray[np.float64]
    cosine: NDArray[np.float64]


def _runs(name: str) -> list[Run]:
    (row,) = (row for row in STAGES if row.name == name)
    return [run_of(row, seed, "sst2") for seed in SEEDS]


def write(context: Context) -> str:
    """Return the table, and a sentence for each model."""
    found = {
        words: mean([_measured(context, run) for run in _runs(name)])
        for name, words in _NAMES.items()
    }
    found = {_UNTUNED: _of_encoder(context), **found}
    depth = DEPTHS["minilm"]
    head = ["model", "", *(f"layer {layer}" for layer in range(1, depth + 1))]
    rows = [[name, *cells] for name, each in found.items() for cells in _lines(each)]
    words = " ".join(sentence(words, found[words]) for words in _NAMES.values())
    return "\n\n".join([_ABOUT, table(head, rows), words])


SECTION = Section(
    "Why layers are redundant", tuple(run for name in _NAMES for run in _runs(name)), write
)


def redundancy(recorded: Recorded | None, states: States) -> Redundancy:
    """Compare every exit's answers with those before, and the states around each layer."""
    changed = np.full(len(states.cosines), np.nan)
    if recorded is not None:
        answers = recorded.answers
        assert answers is not None
        changed[1:] = (answers[1:] != answers[:-1]).mean(axis=1)
    pairs = zip(states.means[:-1], states.means[1:], strict=True)
    alignment = np.array([cka(before, after) for before, after in pairs])
    return Redundancy(changed, alignment, states.cosines.mean(axis=1))


def mean(found: Sequence[Redundancy]) -> Redundancy:
    """Return the mean over models of the same depth."""
    return Redundancy(*(np.mean(figures, axis=0) for figures in zip(*found, strict=True)))


def sentence(name: str, found: Redundancy) -> str:
    """Return from which layer on exits change few answers, and how alike states are there."""
    changed = found.changed[1:]
    few = [layer for layer in range(2, len(changed) + 2) if changed[layer - 2 :].max() <= _FEW]
    name = f"{name[0].upper()}{name[1:]}"
    if not few:
        return f"{name}: every layer's exit changes more than {100 * _FEW:.0f} % of the answers."
    late = slice(few[0] - 1, None)
    return (
        f"{name}: from layer {few[0]} of {len(found.cosine)} on, no exit changes more than "
        f"{100 * _FEW:.0f} % of the answers of the one before. The alignment there is "
        f"{found.alignment[late].min():.3f} or more, the cosine {found.cosine[late].min():.2f} to "
        f"{found.cosine[late].max():.2f}."
    )


def _lines(found: Redundancy) -> Iterator[list[str]]:
    if np.isfinite(found.changed).any():
        yield ["answers changed %", "-", *(f"{100 * share:.1f}" for share in found.changed[1:])]
    yield ["alignment", *(f"{each:.3f}" for each in found.alignment)]
    yield ["cosine", *(f"{each:.2f}" for each in found.cosine)]


def _measured(context: Context, run: Run) -> Redundancy:
    loaded = load(context.folder(run))
    recorded = context.recorded(run)
    return redundancy(recorded, states_of(loaded.model, _tokens(context, run)))


def _of_encoder(context: Context) -> Redundancy:
    model = MultiExitModel.from_encoder(context.places.zoo / ENCODERS["minilm"], ["a", "b"])
    return redundancy(None, states_of(model.eval(), _tokens(context, _runs(BASELINE)[0])))


def _tokens(context: Context, run: Run) -> list[Tokens]:
    """Return some texts as a run's model reads them."""
    loaded = load(context.folder(run))
    source = TorchSource(loaded.model, loaded.tokenizer, loaded.max_tokens)
    texts, _ = inputs(examples_of(context, run.data, source.traits))
    return source.read([texts[place] for place in spread(len(texts), NUM_TEXTS)])
