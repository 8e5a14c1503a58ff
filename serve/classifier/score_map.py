"""From the scores of an early exit to those that full depth would give.

An early exit that has the right label is often less sure of it than the last one, so that a client
which compares scores with a bound would see another model at every exit. `offramp calibrate` fits a
temperature for every exit, of several labels one for every label, to full depth's probabilities.
A temperature changes no label. Temperature scaling is Guo et al.'s, 2017.
"""

from typing import Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.engine.row import Answer
from serve.policy.ladder import ScoreTemperatures
from serve.rules.traits import Traits

# The scores that answers show: full depth's, as near as a map of the exit's own brings them, or the
# exit's own.
ScoreScale: TypeAlias = Literal["full_depth", "raw"]


class ScoreMap:
    """Maps the scores of one variant's exits.

    Attributes:
        score_scale: what the scores of answers are.
    """

    def __init__(self, temperatures: ScoreTemperatures | None, before: int = 0) -> None:
        """Take the temperatures of a calibration; without them scores stay as they are.

        Args:
            temperatures: (layers, labels or 1), see `Traits.layers`.
            before: how many of these layers are before the first exit.
        """
        self.score_scale: ScoreScale = "raw" if temperatures is None else "full_depth"
        self._temperatures = np.array(temperatures or [[1.0]], np.float32)
        self._own, self._before = [set(row) == {1.0} for row in temperatures or ()], before

    @classmethod
    def of(cls, traits: Traits) -> Self:
        """Return the map of a model as it is calibrated."""
        return cls(traits.score_temperatures, traits.num_before)

    def logits(
        self, logits: NDArray[np.float32], heads: int | NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return the logits that scores are computed from.

        Args:
            logits: (labels,) or (tokens, labels) of one exit; with several heads, (rows, ...).
            heads: the place in `Traits.layers` that gave the logits, or (rows,) that of each row.
        """
        if self.score_scale == "raw":
            return logits
        temperatures = self._temperatures[heads]
        if logits.ndim == 3 and temperatures.ndim == 2:
            temperatures = temperatures[:, None]
        mapped: NDArray[np.float32] = logits / temperatures
        return mapped

    def answer(self, answer: Answer) -> Answer:
        """Return an answer of the engine with mapped scores."""
        if self.score_scale == "raw":
            return answer
        trace = [
            record._replace(mapped=self.logits(record.logits, record.exit_index + self._before))
            for record in answer.exit_trace
        ]
        head = answer.head_index + self._before
        if self._own[head]:
            return answer._replace(exit_trace=trace) if trace else answer
        mapped = self.logits(answer.logits, head)
        return answer._replace(mapped=mapped, exit_trace=trace)
