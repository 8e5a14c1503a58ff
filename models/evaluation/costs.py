"""What a text costs by the exit it leaves at: layers, milliseconds, or operations."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray


class Cost(NamedTuple):
    """One kind of cost of every row at every exit.

    Attributes:
        run: (exits, rows) running on to the exit, without what is asked there.
        asked: (exits, rows) asking the exit: its head and what reads it.
    """

    run: NDArray[np.float64]
    asked: NDArray[np.float64]

    def of(self, exits: NDArray[np.intp], first_heard: int) -> NDArray[np.float64]:
        """Return (rows,) what each row costs.

        Args:
            exits: (rows,) where each row leaves, counted from 0.
            first_heard: the first exit that is asked; a row is asked at every one from there on.
        """
        each = np.arange(len(exits))
        asked_to = np.concatenate([np.zeros((1, len(exits))), self.asked.cumsum(axis=0)])
        before = asked_to[np.minimum(first_heard, exits), each]
        run: NDArray[np.float64] = self.run[exits, each]
        return run + asked_to[exits + 1, each] - before

    def at(self, exit_index: int) -> NDArray[np.float64]:
        """Return (rows,) the cost of running to an exit and asking no other."""
        return self.run[exit_index] + self.asked[exit_index]


# By unit: `layers`, and as far as they are known `ms`, `mflops` and `mflops_linear`.
Costs: TypeAlias = Mapping[str, Cost]
LAYERS, MS, MFLOPS, MFLOPS_LINEAR = "layers", "ms", "mflops", "mflops_linear"


def layer_costs(exits: tuple[int, ...], num_rows: int) -> Cost:
    """Return the layers that rows run; asking an exit takes none."""
    run = np.repeat(np.array(exits, np.float64)[:, None], num_rows, axis=1)
    return Cost(run, np.zeros_like(run))
