"""One served model: tokenizer, live policy and engine behind one asynchronous call."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Protocol, cast
from uuid import uuid4

from serve.audits.guardrail import Guardrail
from serve.bundle.loader import Bundle
from serve.classifier.answer_cache import AnswerCache, Known
from serve.classifier.audited import Comparing
from serve.classifier.auditor import Auditor
from serve.classifier.cascade import Cascade, StageObserver
from serve.classifier.classification import Classification, settle_on_their_loops
from serve.classifier.degrading import Degrading
from serve.classifier.flagger import Flagger
from serve.classifier.options import EngineOptions
from serve.classifier.request_tokenizer import RequestTokenizer
from serve.classifier.score_map import ScoreMap
from serve.classifier.small_exits import open_small
from serve.classifier.table_exit import TableExit
from serve.classifier.variant import for_operators, serve_ladder, variant_shape
from serve.classifier.windowed import Windowed
from serve.engine.engine import Engine
from serve.engine.row import Answer, BatchStats, Outcome, Row
from serve.engine.warm_up import ON_CPU, WarmUp, measure, on_gpu
from serve.errors import DeadlineExceeded, InvalidBundle, InvalidRequest, OfframpError
from serve.policy.flag import check_flag
from serve.policy.live import Live, LivePolicy
from serve.policy.profile import Settings, Windows, check_windows
from serve.policy.store import Store
from serve.rollout.watch import RolloutWatch
from serve.runtime.hardware import available_threads
from serve.runtime.placement import build_runner, place
from serve.runtime.process_memory import give_back_memory
from serve.tokenization.entities import EntityReader
from serve.tokenization.inputs import InputReader
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.windows import Cut

log = logging.getLogger(__name__)

# How long the engine's thread, back from a segment, waits for a busy thread of Python. Python's own
# 5 ms are longer than most segments.
SWITCH_INTERVAL_S = 1e-4
_POLL_EVERY_S = 0.01
# More texts are looked up in the table on a thread: the event loop must stay free.
_MOST_INLINE = 16


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
        traits: the model as its exit rules see it.
        options: how it is run.
        device: where it runs.
        precision: the variant in use.
        batch_limits: how large a batch may grow.
        temperatures: one per exit.
        scores: maps the scores of early exits to full depth's.
        ladder: the rungs that targets resolve to.
        policy: the live policy.
        inputs: reads texts and ids as the model takes them.
        table: answers texts before the first layer; None where the model has no table.
        entities: reads the answers of a token classifier; None for other tasks.
        cache: answers that are given again; None unless the options have one.
        costs: what segments cost, kept up to date by the engine.
        engine: runs the segments.
        cascade: runs texts through the small model in front; None where there is none.
        degrading: what requests give up while the queue is long.
        tokenizer: tokenizes the inputs of requests.
        audits: compares answers with full depth's after they have been sent.
        guardrail: watches what audits say of promises.
        rollout: counts the arms of a rollout, and moves it.
        started: whether its engine has been started.
        num_open: requests that are being answered.
    """

    def __init__(
        self,
        bundle: Bundle,
        options: EngineOptions,
        store: Store,
        observer: Observer,
        tokenizer_pool: Executor,
        of_small: StageObserver | None = None,
    ) -> None:
        """Load and warm the model; `start` makes it answer.

        Args:
            bundle: what to load.
            options: how to run it.
            store: of its live policy and of what its audits have counted.
            observer: counts what it does.
            tokenizer_pool: tokenizes long texts. All models of a process share it.
            of_small: counts what the small model in front does, if the bundle has one.
        """
        manifest, self.num_open, self.started = bundle.manifest, 0, False
        self.name, self.bundle, self.options = bundle.name, bundle, options
        self._observer, self._pool = observer, tokenizer_pool
        placement = place(bundle, options.device, options.precision)
        self.device, self.precision = placement
        self.batch_limits = options.batch_limits(placement.device)
        self.inputs = InputReader(bundle.tokenizer_path, manifest)
        self.entities: EntityReader | None = None
        if manifest.task == "token":
            self.entities = EntityReader(manifest.labels, self.inputs.word_span_finder)
        threads = options.num_threads or available_threads()
        chain = build_runner(bundle, placement, threads, options.gpu_memory_gb)
        self._small = open_small(bundle, placement, threads, options.gpu_memory_gb)
        warm_up = on_gpu(self.batch_limits) if self.device == "cuda" else ON_CPU
        self.costs = measure(chain, manifest.max_tokens, warm_up)
        shape = variant_shape(bundle, self.precision)
        self.traits, self.temperatures = shape.traits, shape.temperatures
        self.scores, self.table = ScoreMap.of(self.traits), self._table_exit()
        self.ladder = serve_ladder(bundle, self.precision, chain, shape, self._small)
        if self.ladder.uncertified:
            log.warning("%s", for_operators(self.ladder.uncertified, bundle))
        self.policy = LivePolicy(bundle.name, self.ladder, store, bundle.sha256)
        self.engine = Engine(
            chain,
            replace(shape, costs=self.costs),
            self._deliver,
            observer.batch,
            self.batch_limits,
            options.queue_limits,
        )
        self.cascade = self._cascade(of_small or observer, warm_up)
        self.degrading, self.cache = Degrading(self.engines), self._answer_cache()
        self.tokenizer = RequestTokenizer(
            self.inputs, self.engine, observer.tokenized, tokenizer_pool
        )
        self._watch(store)

    def _cascade(self, observer: StageObserver, warm_up: WarmUp) -> Cascade | None:
        if self._small is None:
            return None
        limits = self.batch_limits, self.options.queue_limits
        return Cascade(self._small, self.engine, self._deliver, observer, limits, warm_up)

    def _watch(self, store: Store) -> None:
        """Prepare audits, and what looks at them."""
        self.guardrail = Guardrail(self.name, self.policy, self.ladder, store)
        comparing = Comparing.of(self.traits, self.scores, self.entities, self.ladder, self.table)
        put_counts = partial(store.put_counts, self.name, uuid4().hex)
        self.audits = Auditor(self.engine, comparing, put_counts)
        self.rollout = RolloutWatch(
            self.name, self.policy, self.traits.layers, store, self.audits.count
        )
        self.audits.watches += self.guardrail.look, self.rollout.watch

    @property
    def engines(self) -> list[Engine]:
        """The engines that a text may run through, in their order."""
        return [self.cascade.engine, self.engine] if self.cascade else [self.engine]

    @property
    def alive(self) -> bool:
        """Whether every engine runs."""
        return all(engine.alive for engine in self.engines)

    def start(self) -> None:
        """Start the engines."""
        if self.started:
            return
        self.started = True
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        for engine in self.engines:
            engine.start()
        self.audits.start()

    def stop(self, drain_s: float) -> None:
        """Answer the admitted requests, then end; those unanswered after `drain_s` are given up."""
        # The small model first: what it does not answer goes on to the large one.
        ends_s = self.engine.clock() + drain_s
        ended = [engine.stop(max(0.0, ends_s - engine.clock())) for engine in self.engines]
        if not all(ended):
            log.warning("%s: stopped with requests unanswered", self.name)
        self.audits.stop()

    async def retire(self, drain_s: float) -> None:
        """End, and give the memory back, when the requests are answered that have come so far.

        No new ones may come. What is not answered after `drain_s` is given up.
        """
        self.audits.watch_no_more()
        clock = asyncio.get_running_loop().time
        ends_s = clock() + drain_s
        while self.num_open and clock() < ends_s:  # its texts may not be tokenized yet
            await asyncio.sleep(_POLL_EVERY_S)
        await asyncio.to_thread(self.stop, max(0.0, ends_s - clock()))
        for engine in self.engines:
            engine.free()
        await asyncio.to_thread(give_back_memory)

    async def classify(self, request: Classification, live: Live | None = None) -> None:
        """Classify inputs; a cancelled call drops its rows before their next segment.

        Args:
            request: what is asked; the answers are noted in it.
            live: the policy that it is answered under; None for the one that is live now.

        Raises:
            OfframpError: of the rule, the inputs, the queue or the model.
        """
        request.classifier, request.live = self, live or self.policy.live
        self.num_open += 1
        try:
            await self._classify(request)
        finally:
            self.num_open -= 1

    async def _classify(self, request: Classification) -> None:
        asked, live = request.asked, request.live
        chosen = live.applied.exit_for(asked.exit_choice, request.assigned, request.flag)
        request.flagger = flagger = self._flagger(request, chosen.settings)
        movable = False
        # A certificate about labels says nothing of a flag.
        if live.applied.faster and flagger is None:
            chosen, movable = self.degrading.plan(request, chosen, live.applied.faster)
        request.chosen = chosen
        request.windows = windows = self._windows(request, chosen.settings, flagger is not None)
        request.special_tokens = request.special_tokens or chosen.settings.special_tokens
        self.engine.check_room(len(request.inputs), client=request.client.identity)
        if request.deadline_s <= self.engine.clock():
            raise DeadlineExceeded
        request.texts = texts = await self.tokenizer.tokenize(request)
        windowed = None
        if windows and any(isinstance(text, Cut) for text in texts):
            windowed = Windowed(texts, windows, flagger, self.traits.task)
        tokens = windowed.tokens if windowed else cast("list[Tokens]", texts)
        outcomes = await self._outcomes(request, tokens, windowed)
        if windowed:
            outcomes, tokens, request.reports = windowed.combined(outcomes)
        request.answers, request.tokens = cast("list[Answer]", outcomes), tokens
        if movable:
            request.degraded = self.degrading.causes(chosen, request.answers)
        request.total_s = self.engine.clock() - request.arrived_s
        # An answer that is given again is no further evidence.
        drawn = self.audits.draw(len(texts), live.audit)
        if places := [place for place in drawn if not request.answers[place].cached]:
            self.audits.audit_soon(request, places)

    async def _outcomes(
        self, request: Classification, tokens: list[Tokens], windowed: Windowed | None
    ) -> Sequence[Answer | None]:
        """Run the rows of a request, and return their answers."""
        lengths = [len(each.input_ids) for each in tokens]
        request.count(len(tokens), sum(lengths))
        rows = _rows(request, tokens, lengths)
        left = await self._at_table(request, rows, windowed)
        await self._read_in_front(request, [row for row in rows if row.tag not in left], windowed)
        known = self._known(request, rows, left)
        request.expect(rows, windowed)
        if known.to_run:
            self._submit(known.to_run)
        request.queued = True
        for tag, answer in known.answers.items():
            request.settle(tag, answer)
        for tag, answer in left.items():
            self._observer.answer(answer, rows[tag].num_tokens)
            request.settle(tag, self.scores.answer(answer))
        return await request.outcomes()

    async def _at_table(
        self, request: Classification, rows: Sequence[Row], windowed: Windowed | None
    ) -> dict[int, Answer]:
        """Return the answers of the rows that leave before the first layer, by their tags."""
        if self.table is None or request.chosen.rule.table is None:
            return {}
        judged = [row for row in rows if windowed is None or windowed.whole(row.tag)]
        if len(judged) <= _MOST_INLINE:
            return self.table.answers(judged)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self.table.answers, judged)

    async def _read_in_front(
        self, request: Classification, rows: Sequence[Row], windowed: Windowed | None
    ) -> None:
        """Give rows that may leave in the small model in front their tokens there."""
        if self._small is None or request.chosen.rule.small is None:
            return
        judged = [row for row in rows if windowed is None or windowed.whole(row.tag)]
        inputs = [
            request.inputs[row.tag if windowed is None else windowed.text_of(row.tag)]
            for row in judged
        ]
        tokens = await self.tokenizer.read_in_front(self._small.exits, request, inputs)
        for row, own in zip(judged, tokens, strict=True):
            row.in_front = own and (own.input_ids, own.token_type_ids)

    def _known(self, request: Classification, rows: list[Row], left: dict[int, Answer]) -> Known:
        """Return what is known of the rows that do not leave before the first layer.

        Traces are of rows that run, and a faster rule's answers under overload are not kept.
        """
        if self.cache is None or request.exit_trace or request.chosen.moved:
            return Known({}, [row for row in rows if row.tag not in left])
        return self.cache.look(rows, left)

    def _answer_cache(self) -> AnswerCache | None:
        if self.options.answer_cache_mb is None:
            return None
        max_bytes = int(self.options.answer_cache_mb * 2**20)
        return AnswerCache(max_bytes, self._run, self._observer.answer)

    def _run(self, rows: Sequence[Row]) -> None:
        (self.cascade or self.engine).submit(rows)

    def _submit(self, rows: Sequence[Row]) -> None:
        try:
            self._run(rows)
        except OfframpError:
            if self.cache:
                self.cache.forget(rows)
            raise

    def _table_exit(self) -> TableExit | None:
        table = self.bundle.read_table()
        if table and table.vocabulary < self.inputs.vocab_size:
            raise InvalidBundle(
                f"{self.bundle.folder}: the table has rows for {table.vocabulary} token ids, and "
                f"the model has {self.inputs.vocab_size}"
            )
        return TableExit(table, self.traits) if table else None

    def _flagger(self, request: Classification, settings: Settings) -> Flagger | None:
        """Return what flags the answers to a request; its own flag goes before the profile's.

        Raises:
            InvalidRequest: the model cannot flag like this.
        """
        flag = request.flag or settings.flag
        if request.flag is not None:
            check_flag(request.flag, self.traits)
        return Flagger(flag, self.traits, self.entities, request.aggregation) if flag else None

    def _windows(self, request: Classification, settings: Settings, flags: bool) -> Windows | None:
        """Return how a request's long texts are cut; None where they are not.

        Raises:
            InvalidRequest: the model or the request has no use for windows like this.
        """
        # A text that its request wants cut short needs no windows of the profile.
        asked = request.asked
        windows = asked.windows or (None if asked.truncate else settings.windows)
        if windows is None:
            return None
        check_windows(windows, flags, self.traits)
        if asked.truncate:
            raise InvalidRequest("truncate: the texts are cut into windows; send one of the two")
        if request.exit_trace and self.traits.task == "token":
            raise InvalidRequest(
                "return: exits of tokens are not shown with windows; leave exits or windows out"
            )
        return windows

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        if self.scores.score_scale == "full_depth":
            outcomes = [Outcome(row, self._scored(result)) for row, result in outcomes]
        for outcome in outcomes:
            if isinstance(outcome.result, Answer):
                self._observer.answer(outcome.result, outcome.row.num_tokens)
        settle_on_their_loops(outcomes)

    def _scored(self, result: Answer | OfframpError) -> Answer | OfframpError:
        return self.scores.answer(result) if isinstance(result, Answer) else result


def _rows(request: Classification, tokens: list[Tokens], lengths: list[int]) -> list[Row]:
    """Return the rows of a request; the tokens before each are those of the rows before it."""
    ahead, rule, exit_trace = (
        accumulate(lengths, initial=0),
        request.chosen.rule,
        request.exit_trace,
    )
    client, deadline_s = request.client.identity, request.deadline_s
    return [
        Row(
            t.input_ids,
            t.token_type_ids,
            rule,
            waiter=request,
            tag=place,
            deadline_s=deadline_s,
            priority=request.priority,
            ahead_tokens=ahead_tokens,
            counted=t.counted,
            exit_trace=[] if exit_trace else None,
            client=client,
            segment_trace=[] if request.traced else None,
        )
        for place, (t, ahead_tokens) in enumerate(zip(tokens, ahead, strict=False))
    ]
