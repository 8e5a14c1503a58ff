"""The model as the engine sees it."""

from dataclasses import dataclass

from serve.engine.cost_model import CostModel
from serve.rules import CompiledRule, Rule, compile_rule
from serve.rules.traits import Traits


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the engine must know of the model.

    Attributes:
        traits: the model's exits, labels and task; one exit per segment.
        temperatures: one per exit.
        pad_id: fills short rows.
        costs: what segments cost, if that has been measured.
    """

    traits: Traits
    temperatures: tuple[float, ...]
    pad_id: int = 0
    costs: CostModel | None = None

    @property
    def exits(self) -> tuple[int, ...]:
        """Exit layers, ascending."""
        return self.traits.exits

    def compile(self, rule: Rule) -> CompiledRule:
        """Return a rule, worked out for the model.

        Raises:
            InvalidRule: the model cannot follow it.
        """
        return compile_rule(rule, self.traits, self.temperatures)
