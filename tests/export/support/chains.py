"""Segments called by hand, so that tests see hidden states and every exit's logits."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.export.support.graphs import open_graph

Array = NDArray[np.float32]


class Depth(NamedTuple):
    """What one segment gives: (rows, tokens, width) and (rows, labels)."""

    hidden: Array
    logits: Array


class Chain:
    """Bare sessions over a bundle's segments, each run for all rows."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.sessions = [open_graph(path) for path in paths]

    def run(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> list[Depth]:
        """Return hidden states and logits after every segment."""
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        taken = {value.name for value in self.sessions[0].get_inputs()}
        first = {name: array for name, array in inputs.items() if name in taken}
        depths = [Depth(*self.sessions[0].run(None, first))]
        for index in range(1, len(self.sessions)):
            depths.append(self.advance(index, depths[-1].hidden, np.arange(len(ids)), mask))
        return depths

    def advance(
        self, index: int, hidden: Array, keep: NDArray[np.int64], mask: NDArray[np.int64]
    ) -> Depth:
        """Run one later segment."""
        inputs = {"hidden": hidden, "keep": keep, "attention_mask": mask}
        return Depth(*self.sessions[index].run(None, inputs))
