"""Which texts are difficult, and what running on does to the easy ones (Kaya et al. 2019)."""

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
from models.quality.page import table
from models.quality.recorded import Recorded
from models.quality.report.exits import overthinking

MODELS = (SST2_MPNET, SST2_MINILM, MRPC_MPNET, RTE_MPNET)

_ABOUT = (
    "A text is overthought if an earlier exit has it right and the last one wrong, and "
    "rescued if only the last one has it right. The oracle lets every text leave at the first "
    "exit that has it right. The shares are not corrected for chance: an exit that guesses "
    "between two labels has half of the last one's errors right. A text is settled at the "
    "first layer from which all exits give full depth's answer."
)
_HEAD = [
    "model",
    "full depth %",
    "oracle %",
    "oracle's layers",
    "overthought %",
    "rescued %",
    "settled at the first exit %",
    "after half depth %",
]


def write(context: Context) -> str:
    """Return a table with a row for each model that is there."""
    there = {m.name: m.recorded(context) for m in MODELS if m.is_trained(context)}
    blocks = [_ABOUT]
    if there:
        blocks.append(table(_HEAD, [[name, *cells(each)] for name, each in there.items()]))
    return "\n\n".join(block for block in (*blocks, not_there(context, MODELS)) if block)


SECTION = Section("Difficulty and overthinking", (), write)


def cells(recorded: Recorded) -> list[str]:
    """Return a model's row, without its name."""
    assert recorded.right is not None
    found = overthinking(recorded.right, recorded.traits.exits)
    shares = found.full_accuracy, found.oracle_accuracy, found.overthought, found.rescued
    full, oracle, overthought, rescued = map(hundredths, shares)
    early, late = map(hundredths, settled(recorded))
    return [full, oracle, f"{found.oracle_depth:.2f}", overthought, rescued, early, late]


def settled(recorded: Recorded) -> tuple[float, float]:
    """Return the shares of texts settled at the first exit, and after half of the layers."""
    exits = np.array(recorded.traits.exits)
    layers = exits[settled_at(recorded.same())]
    return float((layers == exits[0]).mean()), float((layers > exits[-1] / 2).mean())


def settled_at(same: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return (rows,) the first exit from which all answers are the last one's.

    Args:
        same: (exits, rows) whether an exit gives the last one's answer.
    """
    from_here = np.logical_and.accumulate(same[::-1], axis=0)[::-1]
    found: NDArray[np.intp] = from_here.argmax(axis=0)
    return found
