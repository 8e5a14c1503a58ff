"""What a model has to offer to be measured."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from models.data.examples import Example
from models.evaluation.costs import Costs
from models.evaluation.observation import Subject
from models.evaluation.predictions import Predictions
from serve.rules.traits import Traits

Advance = Callable[[int], None]


class Pass(NamedTuple):
    """One pass of texts over all exits.

    Attributes:
        predictions: what every exit said.
        num_tokens: (rows,) special tokens included.
    """

    predictions: Predictions
    num_tokens: NDArray[np.intp]


class Measurable(Protocol):
    """A model that can be run on texts."""

    @property
    def subject(self) -> Subject:
        """Name and origin."""
        ...

    @property
    def traits(self) -> Traits:
        """The model as its exit rules see it."""
        ...

    @property
    def temperatures(self) -> tuple[float, ...]:
        """One per exit."""
        ...

    def run(self, examples: Sequence[Example], advance: Advance) -> Pass:
        """Run texts through all exits.

        Args:
            examples: with labels of the model.
            advance: called after each batch with its number of rows.
        """
        ...

    def costs(self, num_tokens: NDArray[np.intp]) -> Costs:
        """Return the costs of texts of these lengths, as far as they are known."""
        ...
