"""`calibration.json`: measured figures and certified rules, per variant."""

from pydantic import ConfigDict, Field

from serve.bundle.manifest import Precision
from serve.policy.ladder import Data, Ladder
from serve.validation import Frozen


class ExitFigures(Frozen):
    """How good the answers are when every row leaves at one exit.

    Attributes:
        layer: the exit's layer.
        accuracy: share of rows answered right, 0 to 1: with the right label, with all labels
            right (multi-label), or share of words with the right tag; None for a regression.
        metrics: the task's other measures, such as `f1` or `pearson`, by name.
    """

    layer: int
    accuracy: float | None = None
    metrics: dict[str, float] = Field(default={})

    def value(self, metric: str) -> float:
        """Return the accuracy, or one of the other metrics, by name."""
        if metric != "accuracy":
            return self.metrics[metric]
        if self.accuracy is None:
            raise KeyError(metric)
        return self.accuracy

    @property
    def measured(self) -> tuple[str, ...]:
        """The names that `value` takes."""
        return (*(() if self.accuracy is None else ("accuracy",)), *self.metrics)


class VariantCalibration(Frozen):
    """Figures of one precision.

    Attributes:
        data: the texts that were measured.
        metric: the name of the figure by which exits are compared.
        exits: figures of each exit.
    """

    # Bundles may still hold figures of rules that nothing certified.
    model_config = ConfigDict(frozen=True, extra="ignore")

    data: Data
    metric: str = "accuracy"
    exits: tuple[ExitFigures, ...]

    def on_exits(self, exits: tuple[int, ...]) -> "VariantCalibration":
        """Return the figures of exits at these layers only."""
        kept = tuple(e for e in self.exits if e.layer in exits)
        return self.model_copy(update={"exits": kept})


class Calibration(Frozen):
    """What is known of a bundle's variants.

    Attributes:
        variants: measured figures by precision; a variant that was not measured is absent.
        ladders: certified rules, each of one variant.
    """

    variants: dict[Precision, VariantCalibration] = Field(default={})
    ladders: tuple[Ladder, ...] = ()

    def on_exits(self, exits: tuple[int, ...]) -> "Calibration":
        """Return the figures that hold with exits at these layers only."""
        variants = {p: v.on_exits(exits) for p, v in self.variants.items()}
        return self.model_copy(update={"variants": variants})

    def nearest(self, precision: Precision) -> Precision | None:
        """Return the variant itself if it was measured, else any that was."""
        return precision if precision in self.variants else next(iter(self.variants), None)
