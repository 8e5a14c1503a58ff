"""One served model: tokenizer, live policy and engine behind one asynchronous call."""

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from serve.admission import QueueLimits
from serve.bundle import Bundle
from serve.control import LivePolicy, PolicyStore
from serve.core import ModelShape
from serve.engine import Engine
from serve.errors import DeadlineExceeded, OfframpError
from serve.hardware import available_threads, choose_precision
from serve.ort_environment import share_pool
from serve.pending import Pending, settle_on_their_loops
from serve.row import Answer, Outcome, Row, WaveStats
from serve.rules import ExitRule, check_rule
from serve.runner import Runner
from serve.scheduler import WaveLimits
from serve.segments import SegmentChain
from serve.tokens import Text, TextEncoder, Tokens

log = logging.getLogger(__name__)

# Longer inputs are tokenized on a thread, so that they do not hold up the event loop.
MAX_INLINE_CHARS = 10_000


class Observer(Protocol):
    """Whoever counts what one model does; called from several threads."""

    def wave(self, stats: WaveStats) -> None:
        """Count a segment run."""
        ...

    def answer(self, answer: Answer, num_tokens: int) -> None:
        """Count an answer."""
        ...

    def tokenized(self, duration_s: float) -> None:
        """Count the tokenization of one request."""
        ...


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a model is run.

    Attributes:
        precision: `auto`, or the variant to use.
        num_threads: of each segment; None for all cores that the process may use.
        shared_pool: one pool of threads for all segments; see `serve.ort_environment`.
        wave_limits: how large a wave may grow.
        queue_limits: how much is admitted.
    """

    precision: str = "auto"
    num_threads: int | None = None
    shared_pool: bool = False
    wave_limits: WaveLimits = WaveLimits()
    queue_limits: QueueLimits = QueueLimits()


class Classified(NamedTuple):
    """Answers in the order of the texts, and the policy version they were made under."""

    answers: list[Answer]
    policy_version: int


class Classifier:
    """Classifies texts with one bundle.

    Attributes:
        name: what the model is served as.
        bundle: what it was loaded from.
        precision: the variant in use.
        policy: the live policy.
        engine: runs the segments.
    """

    def __init__(
        self, bundle: Bundle, options: EngineOptions, store: PolicyStore, observer: Observer
    ) -> None:
        """Load and warm the model; `start` makes it answer."""
        manifest = bundle.manifest
        self.name = bundle.name
        self.bundle = bundle
        self.precision = choose_precision(options.precision, bundle)
        self.policy = LivePolicy(bundle.name, manifest, store)
        self._observer = observer
        self._encoder = TextEncoder(bundle.tokenizer_path, manifest.max_tokens)
        threads = options.num_threads or available_threads()
        if options.shared_pool:
            share_pool(threads)
        chain = SegmentChain(bundle, self.precision, threads)
        warm_up(chain, manifest.max_tokens)
        self.engine = Engine(
            chain,
            ModelShape(
                manifest.exit_layers,
                tuple(e.temperature for e in manifest.exits),
                manifest.pad_id,
            ),
            self._deliver,
            observer.wave,
            options.wave_limits,
            options.queue_limits,
        )

    def start(self) -> None:
        """Start the engine."""
        self.engine.start()

    async def classify(
        self,
        texts: Sequence[Text],
        wish: ExitRule | str | None = None,
        deadline_s: float = math.inf,
        truncate: bool = False,
    ) -> Classified:
        """Classify texts; a cancelled call drops its rows before their next segment.

        Args:
            texts: one or more.
            wish: a rule, a profile's name, or None for the policy's default.
            deadline_s: on the engine's clock; rows then leave with the best answer they have.
            truncate: cut texts that are too long.

        Raises:
            OfframpError: of the rule, the texts, the queue or the model.
        """
        live = self.policy.current
        rule = live.policy.rule_for(wish)
        manifest = self.bundle.manifest
        check_rule(rule, manifest.exit_layers, len(manifest.labels))
        self.engine.check_room(len(texts))
        if deadline_s <= self.engine.clock():
            raise DeadlineExceeded
        tokens = await self._tokenize(texts, truncate)
        pending = Pending(len(tokens), asyncio.get_running_loop())
        rows = [
            Row(t.input_ids, t.token_type_ids, rule, (pending, i), deadline_s)
            for i, t in enumerate(tokens)
        ]
        self.engine.submit(rows)
        try:
            return Classified(await pending.answers(), live.version)
        except (asyncio.CancelledError, OfframpError):
            for row in rows:
                row.cancelled = True
            raise

    async def _tokenize(self, texts: Sequence[Text], truncate: bool) -> list[Tokens]:
        began_s = self.engine.clock()
        num_chars = sum(len(t.text) + len(t.text_pair or "") for t in texts)
        if num_chars <= MAX_INLINE_CHARS:
            tokens = self._encoder.encode(texts, truncate)
        else:
            tokens = await asyncio.to_thread(self._encoder.encode, texts, truncate)
        self._observer.tokenized(self.engine.clock() - began_s)
        return tokens

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome.result, Answer):
                self._observer.answer(outcome.result, outcome.row.num_tokens)
        settle_on_their_loops(outcomes)


def warm_up(runner: Runner, max_tokens: int) -> None:
    """Run every segment once on a short and a long wave, so that the first request is fast."""
    for num_rows, num_tokens in ((1, min(8, max_tokens)), (4, min(64, max_tokens))):
        mask = np.ones((num_rows, num_tokens), np.int64)
        step = runner.start(np.ones_like(mask), mask, np.zeros_like(mask))
        for index in range(1, len(runner)):
            step = runner.advance(index, step.hidden, np.arange(num_rows), mask)
