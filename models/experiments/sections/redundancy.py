"""Why layers are redundant: how little answers and hidden states change from layer to layer."""

from collections.abc import Mapping
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from models.checkpoints import load
from models.experiments.section import Context, Section
from models.experiments.sections.models import (
    SST2_MINILM,
    SST2_MPNET,
    ZooModel,
    examples_of,
    not_there,
)
from models.experiments.sections.similarity import States, cka, states_of
from models.quality.recorded import Recorded, inputs
from models.quality.source import TorchSource
from models.quality.style import COLOURS, STYLE, legend_below, new_figure, spread

MODELS = (SST2_MPNET, SST2_MINILM)
NUM_TEXTS = 200
# Of a layer that adds little: the exit after it changes at most so many answers.
_FEW = 0.01

_ABOUT = (
    f"How alike the hidden states before and after each layer are, on {NUM_TEXTS} of the texts: by "
    "the cosine of each token's states, and by the linear centred kernel alignment (Kornblith et "
    "al. 2019, unbiased) of the texts' mean states, which is 1 where a layer keeps all distances "
    "between texts. Both models were trained with all exits at once. A model that was fine-tuned "
    "without exits is not measured."
)
_CAPTION = "Agreement of exits, and likeness of hidden states, by layer."


class Redundancy(NamedTuple):
    """A model whose exits are after every layer.

    Attributes:
        as_before: (layers - 1,) share of texts with the answer of the exit before, from layer 2.
        as_last: (layers,) share of texts with the last exit's answer.
        alignment: (layers,) of the states before and after each layer.
        cosine: (layers,) of the same.
    """

    as_before: NDArray[np.float64]
    as_last: NDArray[np.float64]
    alignment: NDArray[np.float64]
    cosine: NDArray[np.float64]


def write(context: Context) -> str:
    """Return a sentence for each model, and the picture."""
    found = {m.name: _measured(context, m) for m in MODELS if m.is_trained(context)}
    blocks = [_ABOUT]
    if found:
        blocks += [
            " ".join(sentence(name, each) for name, each in found.items()),
            context.picture("redundancy", drawn(found), _CAPTION),
        ]
    return "\n\n".join(block for block in (*blocks, not_there(context, MODELS)) if block)


SECTION = Section("Why layers are redundant", (), write)


def redundancy(recorded: Recorded, states: States) -> Redundancy:
    """Compare every exit with the one before and the last, and the states around each layer."""
    answers = recorded.answers
    assert answers is not None
    pairs = zip(states.means[:-1], states.means[1:], strict=True)
    return Redundancy(
        (answers[1:] == answers[:-1]).mean(axis=1),
        recorded.same().mean(axis=1),
        np.array([cka(before, after) for before, after in pairs]),
        states.cosines.mean(axis=1),
    )


def sentence(name: str, found: Redundancy) -> str:
    """Return from which layer on exits change few answers, and how alike states are there."""
    changed = 1 - found.as_before
    few = [layer for layer in range(2, len(changed) + 2) if changed[layer - 2 :].max() <= _FEW]
    if not few:
        return f"{name}: every layer's exit changes more than {100 * _FEW:.0f} % of the answers."
    late = slice(few[0] - 1, None)
    return (
        f"{name}: from layer {few[0]} of {len(found.as_last)} on, no exit changes more than "
        f"{100 * _FEW:.0f} % of the answers of the one before. The alignment there is "
        f"{found.alignment[late].min():.3f} or more, the cosine {found.cosine[late].min():.2f} to "
        f"{found.cosine[late].max():.2f}."
    )


def drawn(found: Mapping[str, Redundancy]) -> Figure:
    """Draw a panel for each model."""
    with mpl.rc_context(STYLE):
        figure = new_figure((9.0, 3.9))
        panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
        for axes, (name, each) in zip(panels, found.items(), strict=True):
            layers = np.arange(1, len(each.as_last) + 1)
            lines = {
                "same answer as the last exit": each.as_last,
                "same answer as the exit before": np.array([np.nan, *each.as_before]),
                "alignment with the layer before": each.alignment,
                "cosine with the layer before": each.cosine,
            }
            for colour, style, (label, values) in zip(
                COLOURS, ("o-", "o-", "s--", "^--"), lines.items(), strict=False
            ):
                axes.plot(layers, 100 * values, style, color=colour, label=label, markersize=4)
            axes.set_title(name)
            axes.set_xlabel("layer")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        panels[0].set_ylabel("share of texts, or likeness x 100")
        legend_below(figure, panels[0], columns=2)
    return figure


def _measured(context: Context, model: ZooModel) -> Redundancy:
    loaded, recorded = load(model.folder(context)), model.recorded(context)
    texts, _ = inputs(examples_of(context, model.data, recorded.traits))
    source = TorchSource(loaded.model, loaded.tokenizer, loaded.max_tokens)
    tokens = source.read([texts[place] for place in spread(len(texts), NUM_TEXTS)])
    return redundancy(recorded, states_of(loaded.model, tokens))
