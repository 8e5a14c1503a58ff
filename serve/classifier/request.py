"""A classification request as one model takes it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serve.engine.row import Priority, Row
from serve.policy.document import ExitChoice
from serve.tokenization.inputs import Input, size_of


@dataclass(slots=True)
class RequestTrace:
    """What a request went through, for tracing; filled in on its way.

    Attributes:
        tokenized: begin and end of tokenization, on the engine's clock.
        rows: of the request; each has its times and a segment trace.
    """

    tokenized: tuple[float, float] | None = None
    rows: Sequence[Row] = ()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request.

    Attributes:
        inputs: one or more.
        exit_choice: a rule, a profile's name, or None for the policy's default.
        deadline_s: on the engine's clock; rows then leave with the best answer they have.
        truncate: cut texts that are too long.
        priority: among the inputs that wait.
        exit_trace: whether answers carry the outputs of all exits on the input's way.
        take_tokens: called with the number of all tokens before the inputs are queued; what it
            raises refuses the request.
        client: who asks; clients share the queue and the machine evenly.
        trace: to be filled in; None where there is no tracing.
    """

    inputs: Sequence[Input]
    exit_choice: ExitChoice | None = None
    deadline_s: float = math.inf
    truncate: bool = False
    priority: Priority = Priority.NORMAL
    exit_trace: bool = False
    take_tokens: Callable[[int], None] | None = None
    client: str = ""
    trace: RequestTrace | None = None

    @property
    def size(self) -> int:
        """The characters and token ids of all inputs."""
        return sum(map(size_of, self.inputs))
