"""Why layers are redundant: how little answers and hidden states change from layer to layer."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cosine_similarity

from models.checkpoints import LoadedCheckpoint, load
from models.experiments.context import Context
from models.experiments.figures import Column, Figure, table
from models.experiments.measured import examples_of
from models.experiments.page import Section
from models.experiments.run import DEPTHS, ENCODERS, Run
from models.experiments.sections.recipes import BASELINE, STAGES, runs_of
from models.multi_exit import MultiExitModel
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
_STAGES = {row.name: row for row in STAGES}
_RUNS = {
    words: runs_of(_STAGES[name].options, "sst2", frozen=_STAGES[name].frozen)
    for name, words in _NAMES.items()
}

_ABOUT = (
    f"How alike the hidden states before and after each layer are, on {NUM_TEXTS} texts of SST-2: "
    "by the linear centred kernel alignment (Kornblith et al. 2019, unbiased) of the texts' mean "
    "states, 1 where a layer keeps all distances between texts, and by the cosine of each token's "
    "states. The models are those of [two stages or one](#two-stages-or-one-on-sst-2), the mean of "
    "three seeds; heads of the one fine-tuned without exits came afterwards, with all else frozen."
)


class States(NamedTuple):
    """The hidden states of some texts.

    Attributes:
        means: (1 + layers, texts, width) the mean over a text's tokens, of the embeddings first.
        cosines: (layers, texts) of a token's states before and after a layer, the mean over the
            text's tokens.
    """

    means: NDArray[np.float64]
    cosines: NDArray[np.float64]


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


_LINES = (Column("answers changed %"), Column("alignment", 1.0, 3), Column("cosine", 1.0, 2))


def write(context: Context) -> Iterator[str]:
    """Yield the table, and a sentence for each trained model."""
    found = {"encoder before any training": _of_encoder(context)}
    for name, runs in _RUNS.items():
        found[name] = mean([_measured(context, run) for run in runs])
    rows = [row for name, each in found.items() for row in lines(name, each)]
    yield table(["model", "", *(f"layer {k + 1}" for k in range(DEPTHS["minilm"]))], rows)
    yield " ".join(sentence(name, found[name]) for name in _RUNS)


SECTION = Section(
    "Why layers are redundant", _ABOUT, write, tuple(r for runs in _RUNS.values() for r in runs)
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


def lines(name: str, found: Redundancy) -> Iterator[list[Any]]:
    """Yield the lines of the table that have figures."""
    for column, values in zip(_LINES, found, strict=True):
        if np.isfinite(values).any():
            cells = (column.cell(Figure(np.array([value]))) for value in values)
            yield [name, column.head, *cells]


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


def cka(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the linear centred kernel alignment of two layers' states, 1 for equal geometry.

    Kornblith et al. 2019, with the unbiased estimate of the dependence (Song et al. 2012): the
    plain one calls independent states alike when they are wider than there are texts.

    Args:
        one: (texts, width), four texts or more.
        other: (texts, width).
    """
    first, second = _kernel(one), _kernel(other)
    scale = _dependence(first, first) * _dependence(second, second)
    return float(_dependence(first, second) / np.sqrt(scale))


def _kernel(states: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = states - states.mean(axis=0)
    kernel: NDArray[np.float64] = centred @ centred.T
    np.fill_diagonal(kernel, 0.0)
    return kernel


def _dependence(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the unbiased Hilbert-Schmidt criterion of kernels without their diagonals."""
    count = len(one)
    product = one @ other
    means = one.sum() * other.sum() / ((count - 1) * (count - 2))
    found = np.trace(product) + means - 2 * product.sum() / (count - 2)
    return float(found / (count * (count - 3)))


def states_of(model: MultiExitModel, texts: Sequence[Tokens]) -> States:
    """Run texts one by one through all layers; no padding is among the states."""
    means, cosines = [], []
    for tokens in texts:
        ids, types = (torch.from_numpy(x)[None] for x in (tokens.input_ids, tokens.token_type_ids))
        mask = torch.ones_like(ids)
        with torch.inference_mode():
            states = [model.backbone.embed(ids, types, mask)]
            for layer in range(model.backbone.depth):
                states.append(model.run_layers(states[-1], mask, layer, layer + 1))
            every = torch.stack(states)[:, 0].double()  # (1 + layers, tokens, width)
            similar = cosine_similarity(every[1:], every[:-1], dim=-1)
        means.append(every.mean(dim=1).numpy())
        cosines.append(similar.mean(dim=1).numpy())
    return States(np.stack(means, axis=1), np.stack(cosines, axis=1))


def _measured(context: Context, run: Run) -> Redundancy:
    loaded = load(context.folder(run))
    states = states_of(loaded.model, _tokens(context, loaded))
    return redundancy(context.measured(run).recorded, states)


def _of_encoder(context: Context) -> Redundancy:
    model = MultiExitModel.from_encoder(context.zoo / ENCODERS["minilm"], ["a", "b"])
    tokens = _tokens(context, load(context.folder(SECTION.runs[-1])))
    return redundancy(None, states_of(model.eval(), tokens))


def _tokens(context: Context, loaded: LoadedCheckpoint) -> list[Tokens]:
    """Return some texts as a model reads them."""
    source = TorchSource(loaded.model, loaded.tokenizer, loaded.max_tokens)
    texts, _ = inputs(examples_of(context.files("sst2"), source.traits))
    return source.read([texts[place] for place in spread(len(texts), NUM_TEXTS)])
