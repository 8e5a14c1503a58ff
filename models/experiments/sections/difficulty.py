"""Which texts are difficult, and what running on does to the easy ones (Kaya et al. 2019)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.experiments.section import Context, Section
from models.experiments.sections.models import (
    MRPC_MPNET,
    RTE_MPNET,
    SST2_MINILM,
    SST2_MPNET,
    not_there,
)
from models.quality.card import hundredths
from models.quality.recorded import Recorded
from models.report.markdown import table
from models.report.parts.difficulty import difficulty
from models.report.parts.overthinking import overthinking

MODELS = (SST2_MPNET, SST2_MINILM, MRPC_MPNET, RTE_MPNET)

_ABOUT = (
    "A text is overthought if an earlier exit has it right and the last one wrong, and rescued if "
    "only the last one has it right. The oracle lets every text leave at the first exit that has "
    "it right. The correlations are Spearman's, of the first exit's confidence with the text's "
    "length and with the share of later exits that give the same answer."
)
_SETTLED = (
    "A text is settled at the first layer from which all exits give full depth's answer: the later "
    "it is settled, the more difficult it is. The accuracy is that of full depth on these texts."
)
_HEAD = [
    "model",
    "full depth %",
    "oracle %",
    "oracle's layers",
    "overthought %",
    "rescued %",
    "confidence with length",
    "confidence with agreement",
]


class Settled(NamedTuple):
    """The texts whose answer stays the same from one layer on.

    Attributes:
        layer: that layer.
        share: of all texts.
        accuracy: share of them that are right; NaN without any.
        tokens: their mean length; NaN without any.
    """

    layer: int
    share: float
    accuracy: float
    tokens: float

    @property
    def cells(self) -> list[object]:
        """The cells of the table."""
        if not self.share:
            return [self.layer, "0.00", None, None]
        accuracy = hundredths(self.accuracy)
        return [self.layer, hundredths(self.share), accuracy, f"{self.tokens:.1f}"]


def write(context: Context) -> str:
    """Return a table of all models, and one of settled texts for each."""
    there = {m.name: m.recorded(context) for m in MODELS if m.is_trained(context)}
    blocks = [_ABOUT]
    if there:
        rows = [[name, *overthinking_cells(recorded)] for name, recorded in there.items()]
        blocks += [table(_HEAD, rows), _SETTLED]
    for name, recorded in there.items():
        head = [f"{name}: settled at layer", "texts %", "accuracy %", "mean tokens"]
        blocks.append(table(head, [each.cells for each in settled(recorded)]))
    return "\n\n".join(block for block in (*blocks, not_there(context, MODELS)) if block)


SECTION = Section("Difficulty and overthinking", (), write)


def overthinking_cells(recorded: Recorded) -> list[str]:
    """Return a model's row of the first table, without its name."""
    right, answers = recorded.right, recorded.answers
    assert right is not None
    assert answers is not None
    found, correlations = overthinking(right, recorded.traits.exits), difficulty(recorded, answers)
    shares = found.full_accuracy, found.oracle_accuracy, found.overthought, found.rescued
    full, oracle, overthought, rescued = map(hundredths, shares)
    with_length, with_answers = (f"{value:+.2f}" for value in correlations.values())
    depth = f"{found.oracle_depth:.2f}"
    return [full, oracle, depth, overthought, rescued, with_length, with_answers]


def settled(recorded: Recorded) -> list[Settled]:
    """Group texts by the layer from which their answer stays the same."""
    right = recorded.right
    assert right is not None
    places = settled_at(recorded.same())
    groups = []
    for place, layer in enumerate(recorded.traits.exits):
        own = places == place
        accuracy, tokens = np.nan, np.nan
        if own.any():
            accuracy, tokens = right[-1][own].mean(), recorded.num_tokens[own].mean()
        groups.append(Settled(layer, float(own.mean()), float(accuracy), float(tokens)))
    return groups


def settled_at(same: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return (rows,) the first exit from which all answers are the last one's.

    Args:
        same: (exits, rows) whether an exit gives the last one's answer.
    """
    from_here = np.logical_and.accumulate(same[::-1], axis=0)[::-1]
    found: NDArray[np.intp] = from_here.argmax(axis=0)
    return found
