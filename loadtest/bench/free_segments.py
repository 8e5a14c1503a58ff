"""Segments that cost nothing, so that only the engine's own bookkeeping takes time."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serve.engine.runner import Hidden, Ids, StepOutput


class FreeSegments:
    """A `serve.engine.runner.ModelRunner` that returns arrays made beforehand."""

    def __init__(self, num_segments: int, max_rows: int) -> None:
        self._num_segments = num_segments
        logits = np.random.default_rng(0).normal(size=(max_rows, 2)).astype(np.float32)
        hidden = np.zeros((max_rows, 1, 1), np.float32)
        self._steps = [StepOutput(hidden[:rows], logits[:rows]) for rows in range(max_rows + 1)]

    def __len__(self) -> int:
        return self._num_segments

    def start(
        self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids, until: int = 0
    ) -> StepOutput:
        return self._steps[len(input_ids)]

    def advance(
        self,
        index: int,
        hidden: Hidden,
        keep: NDArray[np.int64],
        attention_mask: Ids,
        until: int | None = None,
    ) -> StepOutput:
        return self._steps[len(keep)]

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        return self._steps[sum(len(keep) for _, keep, _ in parts)].hidden
