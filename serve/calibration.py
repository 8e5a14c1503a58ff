"""`calibration.json`: what each threshold costs and saves, measured per variant."""

from pydantic import BaseModel, ConfigDict

from serve.manifest import Precision
from serve.rules import ExitRule, LayerRule, NeverRule


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Data(_Frozen):
    """The data the figures were measured on."""

    name: str
    rows: int
    sha256: str


class ExitFigures(_Frozen):
    """Accuracy (0 to 1) when every row is answered at this layer."""

    layer: int
    accuracy: float


class OperatingPoint(_Frozen):
    """What one rule gives.

    Attributes:
        accuracy: share of rows labelled right, 0 to 1.
        agreement: share of rows with the last exit's label, 0 to 1.
        mean_exit_layer: mean number of transformer layers executed.
    """

    rule: ExitRule
    accuracy: float
    agreement: float
    mean_exit_layer: float


class VariantCalibration(_Frozen):
    """Figures of one precision."""

    data: Data
    exits: tuple[ExitFigures, ...]
    operating_points: tuple[OperatingPoint, ...]

    def on_exits(self, exits: tuple[int, ...]) -> "VariantCalibration":
        """Return the figures that hold with exits at these layers only.

        A threshold then catches rows at other layers, so of the operating points only those
        survive that no exit decides: a fixed layer, or never.
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
    """Figures by precision; a variant that was not measured is absent."""

    variants: dict[Precision, VariantCalibration] = {}

    def on_exits(self, exits: tuple[int, ...]) -> "Calibration":
        """Return the figures that hold with exits at these layers only."""
        return Calibration(variants={p: v.on_exits(exits) for p, v in self.variants.items()})

    def nearest(self, precision: Precision) -> Precision | None:
        """Return the variant whose figures tell most about this one: itself, else any other."""
        return precision if precision in self.variants else next(iter(self.variants), None)


def _same_on(rule: ExitRule, exits: tuple[int, ...]) -> bool:
    if isinstance(rule, LayerRule):
        return rule.layer in exits
    return isinstance(rule, NeverRule) and (rule.max_layer is None or rule.max_layer in exits)
