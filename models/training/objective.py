"""The settings of the loss of all exits."""

from pydantic import BaseModel, ConfigDict, NonNegativeFloat

from models.training.exit_weights import EXIT_WEIGHTS, ExitWeights, Weigh


class Objective(BaseModel):
    """What exits learn besides their labels, and how much each counts.

    Attributes:
        distill: weight of learning from the last exit's answers.
        exit_weights: how much each exit counts; None takes the recipe's own weights.
        learn_error: whether exits learn to estimate their own error.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    distill: NonNegativeFloat = 0.0
    exit_weights: ExitWeights | None = None
    learn_error: bool = False

    def weigh(self, own: Weigh) -> Weigh:
        """Return the chosen weights of the exits, or the recipe's own."""
        return EXIT_WEIGHTS[self.exit_weights] if self.exit_weights else own
