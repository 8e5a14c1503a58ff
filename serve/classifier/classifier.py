"""One served model: tokenizer, live policy and engine behind one asynchronous call."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Protocol

from tokenizers import Encoding

from serve.bundle.loader import Bundle
from serve.classifier.classified import Classified
from serve.classifier.ladder import serve_ladder
from serve.classifier.options import EngineOptions
from serve.classifier.pending import Pending, settle_on_their_loops
from serve.classifier.plan import Rows, num_windows, plan_for
from serve.classifier.request import ModelRequest
from serve.engine.engine import Engine
from serve.engine.executor import ModelShape
from serve.engine.row import Answer, BatchStats, Outcome, Row
from serve.engine.warm_up import ON_CPU, measure, on_gpu
from serve.errors import DeadlineExceeded, OfframpError, TooManyInputs
from serve.policy.live import LivePolicy, PolicyStore
from serve.policy.windows import Windows
from serve.rules import CompiledRule
from serve.runtime.hardware import available_threads
from serve.runtime.placement import build_runner, place
from serve.tokenization.entities import EntityReader
from serve.tokenization.inputs import Input, InputReader, pieces_of
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.windows import Cut

__all__ = ["Classified", "Classifier", "Observer"]

log = logging.getLogger(__name__)

# Longer requests are tokenized on a thread: the event loop must stay free.
MAX_INLINE_SIZE = 10_000

# How long the engine's thread, back from a segment, waits for a busy thread of Python. Python's own
# 5 ms are longer than most segments.
SWITCH_INTERVAL_S = 1e-4


class Observer(Protocol):
    """Counts what one model does, for the metrics. Called from several threads."""

    def batch(self, stats: BatchStats) -> None:
        """Count a segment run."""
        ...

    def answer(self, answer: Answer, num_tokens: int) -> None:
        """Count an answer."""
        ...

    def tokenized(self, duration_s: float) -> None:
        """Count the tokenization of one request."""
        ...


class Classifier:
    """Classifies texts with one bundle.

    Attributes:
        name: what the model is served as.
        bundle: what it was loaded from.
        options: how it is run.
        device: where it runs.
        precision: the variant in use.
        batch_limits: how large a batch may grow.
        temperatures: one per exit.
        ladder: the rungs that targets resolve to.
        policy: the live policy.
        inputs: reads texts and ids as the model takes them.
        entities: reads the answers of a token classifier; None for other tasks.
        costs: what segments cost, kept up to date by the engine.
        engine: runs the segments.
    """

    def __init__(
        self,
        bundle: Bundle,
        options: EngineOptions,
        store: PolicyStore,
        observer: Observer,
        tokenizer_pool: Executor,
    ) -> None:
        """Load and warm the model; `start` makes it answer.

        Args:
            bundle: what to load.
            options: how to run it.
            store: of its live policy.
            observer: counts what it does.
            tokenizer_pool: tokenizes long texts. All models of a process share it.
        """
        manifest = bundle.manifest
        self.name = bundle.name
        self.bundle = bundle
        self.options = options
        placement = place(bundle, options.device, options.precision)
        self.device, self.precision = placement
        self.batch_limits = options.batch_limits(placement.device)
        self._observer = observer
        self._tokenizer_pool = tokenizer_pool
        self._tokens_coming = 0  # of requests that are being tokenized in pieces
        self.inputs = InputReader(bundle.tokenizer_path, manifest)
        self.entities: EntityReader | None = None
        if manifest.task == "token":
            self.entities = EntityReader(manifest.labels, self.inputs.word_span_finder)
        threads = options.num_threads or available_threads()
        chain = build_runner(bundle, placement, threads, options.gpu_memory_gb)
        warm_up = on_gpu(self.batch_limits) if self.device == "cuda" else ON_CPU
        self.costs = measure(chain, manifest.max_tokens, warm_up)
        self.temperatures = bundle.temperatures(self.precision)
        shape = ModelShape(manifest.traits, self.temperatures, manifest.pad_id)
        self.ladder = serve_ladder(bundle, self.precision, chain, shape)
        if self.ladder.uncertified:
            log.warning("%s", self.ladder.uncertified)
        self.policy = LivePolicy(bundle.name, self.ladder, store)
        self.engine = Engine(
            chain,
            replace(shape, costs=self.costs),
            self._deliver,
            observer.batch,
            self.batch_limits,
            options.queue_limits,
        )

    def start(self) -> None:
        """Start the engine."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self.engine.start()

    async def classify(self, request: ModelRequest) -> Classified:
        """Classify inputs; a cancelled call drops its rows before their next segment.

        Raises:
            OfframpError: of the rule, the inputs, the queue or the model.
        """
        entry, applied = self.policy.live
        chosen = applied.exit_for(request.exit_choice)
        plan = plan_for(request, chosen, self.bundle.manifest.traits, self.entities)
        self.engine.check_room(len(request.inputs), client=request.client)
        if request.deadline_s <= self.engine.clock():
            raise DeadlineExceeded
        texts, tokenize_s = await self._tokenize(request, plan.windows)
        rows_of = Rows.of(texts)
        request.count(len(rows_of.tokens), sum(len(t.input_ids) for t in rows_of.tokens))
        race = plan.race(rows_of, len(texts))
        pending = Pending(len(rows_of.tokens), asyncio.get_running_loop(), race)
        rows = _rows(request, plan.rule, rows_of.tokens, pending)
        if race:
            race.start(rows)
        if request.trace:
            request.trace.rows = rows
        self.engine.submit(rows)
        try:
            answers = await pending.answers()
        except (asyncio.CancelledError, OfframpError):
            for row in rows:
                row.cancelled = True
            raise
        winners = race.winners if race else {}
        classified = plan.classified(texts, answers, winners, entry.version)
        return classified._replace(tokenize_s=tokenize_s)

    async def encode(self, texts: Sequence[str], special_tokens: bool) -> list[Encoding]:
        """Return the tokenizer's encodings of texts that may be longer than the model takes.

        Args:
            texts: of a few ten thousand characters together, which are tokenized at once.
            special_tokens: whether those that the model needs are added.

        Raises:
            InvalidRequest: a text cannot be tokenized.
        """
        task = partial(self.inputs.encode, texts, special_tokens)
        return await asyncio.get_running_loop().run_in_executor(self._tokenizer_pool, task)

    async def _tokenize(
        self, request: ModelRequest, windows: Windows | None
    ) -> tuple[Sequence[Tokens | Cut], float]:
        """Return the inputs' tokens and the time that they took."""
        began_s = self.engine.clock()
        if request.size <= MAX_INLINE_SIZE:
            texts = self._read(request, windows, request.inputs)
            _check_rows(request, _num_rows(texts))
        else:
            texts = await self._tokenize_in_pieces(request, windows)
        ended_s = self.engine.clock()
        self._observer.tokenized(ended_s - began_s)
        if request.trace:
            request.trace.tokenized = began_s, ended_s
        return texts, ended_s - began_s

    async def _tokenize_in_pieces(
        self, request: ModelRequest, windows: Windows | None
    ) -> list[Tokens | Cut]:
        """Tokenize on the pool; other requests take turns with the pieces of this one.

        A request that is cancelled, expired or too large for the queue ends after a piece.
        """
        loop, texts, num_rows, num_tokens = asyncio.get_running_loop(), list[Tokens | Cut](), 0, 0
        try:
            for piece in pieces_of(request.inputs):
                task = partial(self._read_in_time, request, windows, piece, len(texts))
                read = await loop.run_in_executor(self._tokenizer_pool, task)
                texts += read
                num_rows += _num_rows(read)
                read_tokens = _num_tokens(read)
                num_tokens += read_tokens
                self._tokens_coming += read_tokens
                others = self._tokens_coming - num_tokens
                coming_rows = num_rows + len(request.inputs) - len(texts)
                _check_rows(request, coming_rows)
                self.engine.check_room(coming_rows, num_tokens, request.client, others)
        finally:
            self._tokens_coming -= num_tokens
        return texts

    def _read_in_time(
        self, request: ModelRequest, windows: Windows | None, piece: Sequence[Input], first: int
    ) -> Sequence[Tokens | Cut]:
        if request.deadline_s <= self.engine.clock():
            raise DeadlineExceeded
        return self._read(request, windows, piece, first)

    def _read(
        self,
        request: ModelRequest,
        windows: Windows | None,
        inputs: Sequence[Input],
        first: int = 0,
    ) -> Sequence[Tokens | Cut]:
        if windows is None:
            return self.inputs.read(inputs, request.truncate, first)
        return self.inputs.read_windows(inputs, windows.stride, first)

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome.result, Answer):
                self._observer.answer(outcome.result, outcome.row.num_tokens)
        settle_on_their_loops(outcomes)


def _num_rows(texts: Sequence[Tokens | Cut]) -> int:
    return sum(map(num_windows, texts))


def _num_tokens(texts: Sequence[Tokens | Cut]) -> int:
    return sum(len(tokens.input_ids) for tokens in Rows.of(texts).tokens)


def _check_rows(request: ModelRequest, num_rows: int) -> None:
    if request.max_rows is not None and num_rows > request.max_rows:
        raise TooManyInputs(
            f"inputs: {num_rows} texts and windows of them, at most {request.max_rows} per request"
        )


def _rows(
    request: ModelRequest, rule: CompiledRule, tokens: list[Tokens], pending: Pending
) -> list[Row]:
    return [
        Row(
            t.input_ids,
            t.token_type_ids,
            rule,
            tag=(pending, place),
            deadline_s=request.deadline_s,
            priority=request.priority,
            ahead_tokens=ahead,
            counted=t.counted,
            exit_trace=[] if request.exit_trace else None,
            client=request.client,
            segment_trace=[] if request.trace else None,
        )
        for place, (t, ahead) in enumerate(zip(tokens, _tokens_ahead(tokens), strict=True))
    ]


def _tokens_ahead(texts: Sequence[Tokens]) -> list[int]:
    """Return how many tokens of the request stand before each of its texts."""
    return [0, *accumulate(len(t.input_ids) for t in texts)][:-1]
