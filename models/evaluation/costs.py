"""What a text costs by the exit it leaves at: layers, milliseconds, or operations."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.classifier.exit_costs import ExitCosts
from serve.rules import CompiledRule

LAYERS, MS, MFLOPS, MFLOPS_LINEAR = "layers", "ms", "mflops", "mflops_linear"


class Cost(Protocol):
    """One kind of cost."""

    def of(self, exits: NDArray[np.intp], rule: CompiledRule) -> NDArray[np.float64]:
        """Return (rows,) what rows cost that leave at these exits, counted from 0, by a rule."""
        ...


# By unit, as far as they are known.
Costs: TypeAlias = Mapping[str, Cost]


class RowCost(NamedTuple):
    """The cost of every row at every exit.

    Attributes:
        run: (exits, rows) running on to the exit, without what is asked there.
        asked: (exits, rows) asking the exit: its head and what reads it.
    """

    run: NDArray[np.float64]
    asked: NDArray[np.float64]

    def of(self, exits: NDArray[np.intp], rule: CompiledRule) -> NDArray[np.float64]:
        """Return (rows,) what each row costs; it is asked at every exit that the rule hears."""
        each = np.arange(len(exits))
        asked_to = np.concatenate([np.zeros((1, len(exits))), self.asked.cumsum(axis=0)])
        before = asked_to[np.minimum(rule.first_heard, exits), each]
        run: NDArray[np.float64] = self.run[exits, each]
        return run + asked_to[exits + 1, each] - before


class TimeCost(NamedTuple):
    """Milliseconds of a lone text of the data's mean length, as the server expects them."""

    exit_costs: ExitCosts

    def of(self, exits: NDArray[np.intp], rule: CompiledRule) -> NDArray[np.float64]:
        """Return (rows,) what each row costs."""
        return np.array(self.exit_costs.until_exits_ms(rule))[exits]


def layer_costs(exits: tuple[int, ...], num_rows: int) -> RowCost:
    """Return the layers that rows run; asking an exit takes none."""
    run = np.repeat(np.array(exits, np.float64)[:, None], num_rows, axis=1)
    return RowCost(run, np.zeros_like(run))
