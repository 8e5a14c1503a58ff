"""One request to one model: what is asked, and what becomes of it on its way."""

import asyncio
import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from serve.access.gate import Client
from serve.classifier.classify_request import ClassifyRequest
from serve.classifier.flagger import Flagger
from serve.classifier.windowed import Windowed, WindowsReport, num_tokens
from serve.engine.row import Answer, Outcome, Priority, Row
from serve.errors import OfframpError
from serve.policy.flag import AnyFlag
from serve.policy.live import Live
from serve.policy.profile import SpecialTokens, Windows
from serve.policy.resolution import ChosenExit, Resolution
from serve.policy.target import Cause
from serve.tokenization.entities import Aggregation
from serve.tokenization.inputs import Input
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.windows import Cut

if TYPE_CHECKING:
    from serve.classifier.classifier import Classifier

_UNKNOWN = Client("")


@dataclass(slots=True, eq=False)
class Classification:
    """One request to one model. Belongs to the event loop that it is answered on.

    Attributes:
        asked: what is asked.
        client: who asks; clients share the queue and the machine evenly.
        arrived_s: when the request came, on the engine's clock.
        priority: among the inputs that wait.
        flag: thresholds by label in the place of the flag that is asked for; a guardrail's.
        assigned: whether the operator has chosen the profile, as `AppliedPolicy.exit_for` has it.
        max_rows: most windows of all inputs together.
        judged: whether the answers count in the verdict on the arm of a rollout.
        traced: whether the rows record the runs that they are in.
        inputs: what is to be classified.
        special_tokens: whether special tokens in texts are text.
        num_tokens: tokens that were made of its texts, as far as they were tokenized on threads or
            refused for their length.
        tokenized: begin and end of tokenization, on the engine's clock; None before it.
        queued: whether the engine has taken its rows.
        rows: what the inputs have become: each input, or each window of it.
        loop: where its rows' outcomes are settled; set with them.
        classifier: the model.
        live: the policy that it is answered under.
        chosen: what its choice of an exit has become.
        texts: the inputs as tokens, long ones cut into windows.
        windows: how long texts are cut; None where none is to be.
        flagger: tells what flags an answer; None where there is no flag.
        answers: one per input, in their order.
        tokens: what each answer is about: the input, or the window that decided.
        reports: reports on texts that had several windows, by the place of the input.
        degraded: why any of the answers is degraded.
        total_s: time from the request's arrival to the answers.
    """

    asked: ClassifyRequest
    client: Client = _UNKNOWN
    arrived_s: float = field(default_factory=time.monotonic)
    priority: Priority = Priority.NORMAL
    flag: AnyFlag | None = None
    assigned: bool = False
    max_rows: int | None = None
    traced: bool = False
    judged: bool = False
    inputs: Sequence[Input] = field(init=False)
    special_tokens: SpecialTokens | None = field(init=False)
    num_tokens: int = field(default=0, init=False)
    tokenized: tuple[float, float] | None = field(default=None, init=False)
    queued: bool = field(default=False, init=False)
    rows: Sequence[Row] = field(default=(), init=False)
    loop: asyncio.AbstractEventLoop = field(init=False)
    classifier: "Classifier" = field(init=False)
    live: Live = field(init=False)
    chosen: ChosenExit = field(init=False)
    texts: Sequence[Tokens | Cut] = field(init=False)
    windows: Windows | None = field(default=None, init=False)
    flagger: Flagger | None = field(default=None, init=False)
    answers: list[Answer] = field(init=False)
    tokens: list[Tokens] = field(init=False)
    reports: Mapping[int, WindowsReport] = field(default_factory=dict, init=False)
    degraded: tuple[Cause, ...] = field(default=(), init=False)
    total_s: float = field(default=0.0, init=False)
    _outcomes: list[Answer | None] = field(init=False)
    _future: "asyncio.Future[None]" = field(init=False)
    _windowed: Windowed | None = field(default=None, init=False)
    _num_open: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.inputs, self.special_tokens = self.asked.read_inputs(), self.asked.special_tokens
        if self.flag is None:
            self.flag = self.asked.flag

    @property
    def deadline_s(self) -> float:
        """When rows leave with the best answer that they have, on the engine's clock."""
        timeout_ms = self.asked.timeout_ms
        return math.inf if timeout_ms is None else self.arrived_s + timeout_ms / 1000

    @property
    def exit_trace(self) -> bool:
        """Whether answers carry the outputs of all exits on the input's way."""
        return "exits" in self.asked.returned

    @property
    def aggregation(self) -> Aggregation:
        """How tokens become entities, which a flag looks at."""
        return self.asked.aggregation or "simple"

    @property
    def policy_version(self) -> int:
        """The version of the policy that the answers were made under."""
        return self.live.entry.version

    @property
    def resolution(self) -> Resolution | None:
        """What the request's target has become; None where a rule was chosen.

        Its certificate is about single windows, so there is none if a text had several.
        """
        found = self.chosen.resolution
        return found.uncertified() if found and self.reports else found

    @property
    def lengths(self) -> Sequence[int]:
        """The tokens of each input, those that its windows share once."""
        return [num_tokens(text) for text in self.texts]

    @property
    def exit_indices(self) -> list[int]:
        """Where every row has left: each input, or each of its windows that has an answer."""
        found: list[int] = []
        for place, answer in enumerate(self.answers):
            report = self.reports.get(place)
            found += report.exit_indices if report else (answer.exit_index,)
        return found

    def count(self, num_rows: int, num_tokens: int) -> None:
        """Count what the client takes, windows beyond one per input included.

        Raises:
            OfframpError: the client has taken its share.
        """
        if num_rows > len(self.inputs):
            self.client.take("texts", num_rows)
        self.client.take("tokens", num_tokens)

    def expect(self, rows: Sequence[Row], windowed: Windowed | None = None) -> None:
        """Take the rows, before any of them is submitted; their waiter is this request.

        Args:
            rows: their tags are their places.
            windowed: knows which texts the rows are windows of, if any is.
        """
        self.loop = asyncio.get_running_loop()
        self._future = self.loop.create_future()
        self.rows, self._windowed = rows, windowed
        self._outcomes, self._num_open = [None] * len(rows), len(rows)
        if windowed:
            windowed.start(rows)

    async def outcomes(self) -> list[Answer | None]:
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
        return self._outcomes

    def settle(self, place: int, result: Answer | OfframpError) -> None:
        """Record the outcome of one row. To be called on the loop's thread only."""
        if self._future.done() or (self._windowed and self._windowed.over(place)):
            return
        if isinstance(result, OfframpError):
            self._future.set_exception(result)
            return
        self._outcomes[place] = result
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
