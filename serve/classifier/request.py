"""One request to one model: what is asked, and what becomes of it on its way."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from serve.classifier.windowed import Windowed
from serve.engine.row import Answer, Outcome, Priority, Row
from serve.errors import OfframpError
from serve.policy.document import ExitChoice
from serve.policy.flag import AnyFlag
from serve.policy.live import Live
from serve.policy.overload import Degrade
from serve.policy.profile import SpecialTokens
from serve.policy.windowing import Windows
from serve.tokenization.entities import Aggregation
from serve.tokenization.inputs import Input


@dataclass(slots=True, eq=False)
class ModelRequest:
    """One request. Belongs to the event loop that it is answered on.

    Attributes:
        inputs: one or more.
        exit_choice: a rule, a target, a profile's name, or None for the policy's default.
        deadline_s: on the engine's clock; rows then leave with the best answer they have.
        truncate: cut texts that are too long.
        priority: among the inputs that wait.
        exit_trace: whether answers carry the outputs of all exits on the input's way.
        take_tokens: called with the number of all tokens before the inputs are queued; what it
            raises refuses the request.
        client: who asks; clients share the queue and the machine evenly.
        traced: whether the rows record the runs that they are in.
        flag: thresholds by label; None for those of the profile, if it has any.
        windows: how long texts are cut; None for what the profile says.
        aggregation: how tokens become entities, which a flag looks at.
        max_rows: most windows of all inputs together.
        take_rows: called with the number of rows if windows make more rows than there are inputs,
            as `take_tokens`.
        assigned: whether the operator has chosen the profile, as `AppliedPolicy.exit_for` has it.
        special_tokens: whether special tokens in texts are text; None for what the profile says.
        live: the policy that it is answered under; None for the one that is live when it begins.
        degrade: how far it may move under overload; None for what the policy and its profile say.
        tokenized: begin and end of tokenization, on the engine's clock; None before it.
        rows: what the inputs have become: each input, or each window of it.
        num_tokens: that have been made of its texts, as far as they were tokenized on threads or
            refused for their length.
        queued: whether the engine has taken its rows.
        loop: where its rows' outcomes are settled; set with them.
    """

    inputs: Sequence[Input]
    exit_choice: ExitChoice | None = None
    deadline_s: float = math.inf
    truncate: bool = False
    priority: Priority = Priority.NORMAL
    exit_trace: bool = False
    take_tokens: Callable[[int], None] | None = None
    client: str = ""
    traced: bool = False
    flag: AnyFlag | None = None
    windows: Windows | None = None
    aggregation: Aggregation = "simple"
    max_rows: int | None = None
    take_rows: Callable[[int], None] | None = None
    assigned: bool = False
    special_tokens: SpecialTokens | None = None
    live: Live | None = None
    degrade: Degrade | None = None
    tokenized: tuple[float, float] | None = field(default=None, init=False)
    rows: Sequence[Row] = field(default=(), init=False)
    num_tokens: int = field(default=0, init=False)
    queued: bool = field(default=False, init=False)
    loop: asyncio.AbstractEventLoop = field(init=False)
    _answers: list[Answer | None] = field(init=False)
    _future: "asyncio.Future[None]" = field(init=False)
    _windowed: Windowed | None = field(default=None, init=False)
    _num_open: int = field(default=0, init=False)

    def count(self, num_rows: int, num_tokens: int) -> None:
        """Count what the client takes, windows beyond one per input included.

        Raises:
            OfframpError: the client has taken its share.
        """
        if self.take_rows and num_rows > len(self.inputs):
            self.take_rows(num_rows)
        if self.take_tokens:
            self.take_tokens(num_tokens)

    def expect(self, rows: Sequence[Row], windowed: Windowed | None = None) -> None:
        """Take the rows, before any of them is submitted; their waiter is this request.

        Args:
            rows: their tags are their places.
            windowed: knows which texts the rows are windows of, if any is.
        """
        self.loop = asyncio.get_running_loop()
        self._future = self.loop.create_future()
        self.rows, self._windowed = rows, windowed
        self._answers, self._num_open = [None] * len(rows), len(rows)
        if windowed:
            windowed.start(rows)

    async def answers(self) -> list[Answer | None]:
        """Return the answers in the order of the rows; None for rows that need none.

        Raises:
            OfframpError: the first error of any row.
            CancelledError: the client has left. The rows are dropped before their next segment.
        """
        try:
            await self._future
        except (asyncio.CancelledError, OfframpError):
            for row in self.rows:
                row.cancelled = True
            raise
        return self._answers

    def settle(self, place: int, result: Answer | OfframpError) -> None:
        """Record the outcome of one row. To be called on the loop's thread only."""
        if self._future.done() or (self._windowed and self._windowed.over(place)):
            return
        if isinstance(result, OfframpError):
            self._future.set_exception(result)
            return
        self._answers[place] = result
        self._num_open -= 1
        if self._windowed:
            self._num_open -= self._windowed.finish(place, result)
        if not self._num_open:
            self._future.set_result(None)


def settle_on_their_loops(outcomes: Sequence[Outcome]) -> None:
    """Hand outcomes to the requests that wait for them, each on its event loop.

    Each loop is woken once, however many outcomes it gets. Closed loops are left out.
    """
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for outcome in outcomes:
        if waiter := outcome.row.waiter:
            by_loop.setdefault(waiter.loop, []).append(outcome)
    for loop, of_loop in by_loop.items():
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, of_loop)


def _settle(outcomes: Sequence[Outcome]) -> None:
    for row, result in outcomes:
        if row.waiter:
            row.waiter.settle(row.tag, result)
