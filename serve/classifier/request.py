"""What a client asks of one model, made at the edge and the same from there on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from serve.engine.row import Priority
from serve.rules import ExitRule
from serve.tokenization.inputs import Input
from serve.tokenization.tokenizer import Text


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request.

    Attributes:
        inputs: one or more.
        wish: a rule, a profile's name, or None for the policy's default.
        deadline_s: on the engine's clock; rows then leave with the best answer they have.
        truncate: cut texts that are too long.
        priority: among the inputs that wait.
        trails: whether answers carry what every exit said that they came by.
    """

    inputs: Sequence[Input]
    wish: ExitRule | str | None = None
    deadline_s: float = math.inf
    truncate: bool = False
    priority: Priority = Priority.NORMAL
    trails: bool = False

    @property
    def size(self) -> int:
        """How much there is to read: characters, and ids."""
        return sum(
            len(each.text) + len(each.text_pair or "")
            if isinstance(each, Text)
            else len(each.input_ids)
            for each in self.inputs
        )
