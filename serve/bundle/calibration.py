"""`calibration.json`: measured figures and certified rules, per variant."""

from pydantic import BaseModel, ConfigDict

from serve.bundle.manifest import Precision
from serve.policy.ladder import Data, Ladder
from serve.rules import ExitRule, LayerRule, NeverRule


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Figures(_Frozen):
    """How good the answers are.

    Attributes:
        accuracy: share of rows answered right, 0 to 1: with the right label, with all labels
            right (multi-label), or share of words with the right tag; None for a regression.
        metrics: the task's other measures, such as `f1` or `pearson`, by name.
    """

    accuracy: float | None = None
    metrics: dict[str, float] = {}

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


class ExitFigures(_Figures):
    """Figures of the answers when every row leaves at this layer."""

    layer: int


class OperatingPoint(_Figures):
    """Figures of one rule.

    Attributes:
        agreement: share of rows with the last exit's answer, 0 to 1; None for a regression,
            whose values are never quite the same.
        mean_exit_layer: mean number of transformer layers executed.
    """

    rule: ExitRule
    agreement: float | None = None
    mean_exit_layer: float


class VariantCalibration(_Frozen):
    """Figures of one precision.

    Attributes:
        metric: the name of the figure that the profiles were chosen by.
    """

    data: Data
    metric: str = "accuracy"
    exits: tuple[ExitFigures, ...]
    operating_points: tuple[OperatingPoint, ...]

    def on_exits(self, exits: tuple[int, ...]) -> "VariantCalibration":
        """Return the figures that hold with exits at these layers only.

        With other exits a threshold lets rows leave at other layers. Only operating points whose
        rule does not depend on an exit's output are kept: a fixed layer, or never.
        """
        return self.model_copy(
            update={
                "exits": tuple(e for e in self.exits if e.layer in exits),
                "operating_points": tuple(
                    p for p in self.operating_points if _same_on(p.rule, exits)
                ),
            }
        )


class Calibration(_Frozen):
    """What is known of a bundle's variants.

    Attributes:
        variants: measured figures by precision; a variant that was not measured is absent.
        ladders: certified rules, each of one variant.
    """

    variants: dict[Precision, VariantCalibration] = {}
    ladders: tuple[Ladder, ...] = ()

    def on_exits(self, exits: tuple[int, ...]) -> "Calibration":
        """Return the figures that hold with exits at these layers only."""
        variants = {p: v.on_exits(exits) for p, v in self.variants.items()}
        return self.model_copy(update={"variants": variants})

    def nearest(self, precision: Precision) -> Precision | None:
        """Return the variant itself if it was measured, else any that was."""
        return precision if precision in self.variants else next(iter(self.variants), None)


def _same_on(rule: ExitRule, exits: tuple[int, ...]) -> bool:
    if isinstance(rule, LayerRule):
        return rule.layer in exits
    return isinstance(rule, NeverRule) and (rule.max_layer is None or rule.max_layer in exits)
