"""A classification request as one model takes it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from serve.engine.row import Priority, Row
from serve.policy.document import ExitChoice
from serve.policy.windows import Windows
from serve.tokenization.entities import Aggregation
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
        flag: thresholds by label; None for those of the profile, if it has any.
        windows: how long texts are cut; None for what the profile says.
        aggregation: how tokens become entities, which a flag looks at.
        max_rows: most windows of all inputs together.
        take_rows: called with the number of rows and that of inputs, if windows make more rows of
            them, as `take_tokens`.
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
    flag: Mapping[str, float] | None = None
    windows: Windows | None = None
    aggregation: Aggregation = "simple"
    max_rows: int | None = None
    take_rows: Callable[[int, int], None] | None = None

    @property
    def size(self) -> int:
        """The characters and token ids of all inputs."""
        return sum(map(size_of, self.inputs))

    def count(self, num_rows: int, num_tokens: int) -> None:
        """Count what the client takes, windows beyond one per input included.

        Raises:
            OfframpError: the client has taken its share.
        """
        if self.take_rows and num_rows > len(self.inputs):
            self.take_rows(num_rows, len(self.inputs))
        if self.take_tokens:
            self.take_tokens(num_tokens)
