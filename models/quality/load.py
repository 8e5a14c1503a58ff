"""What a rule brings under load, beside the whole model: texts through the server's engine."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, zip_longest
from typing import NamedTuple

import numpy as np

from models.quality.source import read_tokens
from serve.bundle.loader import Bundle
from serve.classifier.options import BATCH_LIMITS
from serve.classifier.small_exits import OpenSmall, SmallExits, SmallRow, open_small
from serve.classifier.table_exit import TableExit
from serve.classifier.variant import variant_shape
from serve.engine.core import EngineCore
from serve.engine.row import Answer, Row
from serve.engine.runner import ModelRunner
from serve.engine.scheduler import BatchLimits
from serve.engine.shape import ModelShape
from serve.engine.warm_up import ON_CPU, WarmUp, measure, on_gpu
from serve.rules import CompiledRule, ExitRule
from serve.rules.criterion import Reason
from serve.runtime.hardware import available_threads
from serve.runtime.placement import Placement, build_runner
from serve.tokenization.inputs import pieces_of
from serve.tokenization.tokenizer import Text, Tokens

CLIENTS = 16
TURNS, TURN_S = 3, 1.0


class Load(NamedTuple):
    """The answers of a rule to so many clients that ask without pause."""

    per_second: float
    p50_ms: float
    p99_ms: float


def under_load(
    bundle: Bundle, placement: Placement, rules: Sequence[ExitRule], texts: Sequence[Text]
) -> list[Load]:
    """Run texts by each rule, in turns, so that a busy moment of the machine meets all alike.

    It is the engine alone: without HTTP, and tokenized before.
    """
    limits = BATCH_LIMITS[placement.device]
    runner = build_runner(bundle, placement, available_threads())
    warm_up = on_gpu(limits) if placement.device == "cuda" else ON_CPU
    costs = measure(runner, bundle.manifest.max_tokens, warm_up)
    shape = replace(variant_shape(bundle, placement.precision), costs=costs)
    known = bundle.read_table()
    table = TableExit(known, shape.traits) if known else None
    small = open_small(bundle, placement, available_threads())
    own = _in_front(small, texts, warm_up) if small else None
    tokens = cycle(zip_longest(read_tokens(bundle, texts), own.tokens if own else ()))
    compiled = [shape.compile(rule) for rule in rules]
    took_s: list[list[float]] = [[] for _ in rules]
    elapsed_s = [0.0 for _ in rules]
    for _ in range(TURNS):
        for place, rule in enumerate(compiled):
            front = _core(own.runner, own.shape, limits) if own else None
            stages = _Stages(table, front, own and own.exits, _core(runner, shape, limits))
            began_s = time.monotonic()
            took_s[place] += _turn(stages, rule, tokens)
            elapsed_s[place] += time.monotonic() - began_s
    each = zip(took_s, elapsed_s, strict=True)
    return [
        Load(len(took) / elapsed, *(1e3 * np.percentile(took, [50, 99])).tolist())
        for took, elapsed in each
    ]


class _InFront(NamedTuple):
    """The small model in front, and the texts' tokens for it."""

    runner: ModelRunner
    shape: ModelShape
    exits: SmallExits
    tokens: Sequence[Tokens | None]


def _in_front(small: OpenSmall, texts: Sequence[Text], warm_up: WarmUp) -> _InFront:
    exits, runner = small
    shape = replace(exits.shape, costs=measure(runner, exits.max_tokens, warm_up))
    tokens = [each for piece in pieces_of(texts) for each in exits.read(piece, False)]
    return _InFront(runner, shape, exits, tokens)


def _core(runner: ModelRunner, shape: ModelShape, limits: BatchLimits) -> EngineCore:
    return EngineCore(runner, shape, limits, time.monotonic, lambda stats: None)


class _Stages(NamedTuple):
    """What texts run through, in its order."""

    table: TableExit | None
    front: EngineCore | None
    exits: SmallExits | None
    core: EngineCore

    @property
    def busy(self) -> bool:
        return bool(self.core or self.front)

    def take(self, row: Row) -> bool:
        """Take a row in; tell whether it is not answered at once."""
        if self.table and self.table.answer(row):
            return False
        if self.exits and self.front is not None and row.in_front and row.rule.small:
            first = SmallRow(row, self.exits)
            first.admitted_s = row.admitted_s
            self.front.add([first])
        else:
            self.core.add([row])
        return True

    def step(self) -> Iterator[Row]:
        """Let each engine make a step; yield the rows that have an answer."""
        for row, result in [*(self.front.step() if self.front else ()), *self.core.step()]:
            if not isinstance(result, Answer):
                raise result
            if not isinstance(row, SmallRow):
                yield row
            elif self.exits and self.exits.answer(row, result).reason is Reason.FINAL:
                self.core.add([row.behind])
            else:
                yield row.behind


def _turn(
    stages: _Stages, rule: CompiledRule, tokens: Iterator[tuple[Tokens, Tokens | None]]
) -> Iterator[float]:
    """Yield the seconds that each answer of a turn has taken."""
    ends_s = time.monotonic() + TURN_S

    def ask() -> Iterator[float]:
        """Let a client ask until a text goes to an engine; yield what the table took before."""
        while time.monotonic() < ends_s:
            row = _row(*next(tokens), rule)
            if stages.take(row):
                return
            yield time.monotonic() - row.admitted_s

    for _ in range(CLIENTS):
        yield from ask()
    while stages.busy:
        for row in stages.step():
            yield time.monotonic() - row.admitted_s
            yield from ask()


def _row(tokens: Tokens, own: Tokens | None, rule: CompiledRule) -> Row:
    admitted_s, ids, types = time.monotonic(), tokens.input_ids, tokens.token_type_ids
    in_front = own and (own.input_ids, own.token_type_ids)
    return Row(ids, types, rule, admitted_s=admitted_s, counted=tokens.counted, in_front=in_front)
