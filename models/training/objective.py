"""The settings of the loss of all exits."""

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat

from models.training.exit_weights import EXIT_WEIGHTS, ExitWeights, Weigh


class Objective(BaseModel):
    """What exits learn besides their labels, and how much each counts.

    Attributes:
        distill: weight of learning from the last exit's answers.
        exit_weights: how much each exit counts; None takes the recipe's own weights.
        learn_error: whether exits learn to estimate their own error.
        diversity: weight of answering unlike earlier exits.
        unlabelled: whether the texts have no labels, so that a teacher, or else the last exit,
            stands for them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    distill: NonNegativeFloat = 0.0
    exit_weights: ExitWeights | None = None
    learn_error: bool = False
    # From 1 on an exit would lose by answering right what an earlier one has right.
    diversity: float = Field(default=0.0, ge=0, lt=1)
    unlabelled: bool = False

    def weigh(self, own: Weigh) -> Weigh:
        """Return the chosen weights of the exits, or the recipe's own."""
        return EXIT_WEIGHTS[self.exit_weights] if self.exit_weights else own
