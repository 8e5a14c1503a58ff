"""What a rule brings under load, beside the whole model: texts through the server's engine."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import NamedTuple

import numpy as np

from models.quality.source import read_tokens
from serve.bundle.loader import Bundle
from serve.classifier.options import BATCH_LIMITS
from serve.classifier.table_exit import TableExit
from serve.classifier.variant import variant_shape
from serve.engine.core import EngineCore
from serve.engine.row import Answer, Row
from serve.engine.warm_up import ON_CPU, measure, on_gpu
from serve.rules import CompiledRule, ExitRule
from serve.runtime.hardware import available_threads
from serve.runtime.placement import Placement, build_runner
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
    tokens = cycle(read_tokens(bundle, texts))
    compiled = [shape.compile(rule) for rule in rules]
    took_s: list[list[float]] = [[] for _ in rules]
    elapsed_s = [0.0 for _ in rules]
    for _ in range(TURNS):
        for place, rule in enumerate(compiled):
            core = EngineCore(runner, shape, limits, time.monotonic, lambda stats: None)
            began_s = time.monotonic()
            took_s[place] += _turn(core, rule, tokens, table)
            elapsed_s[place] += time.monotonic() - began_s
    each = zip(took_s, elapsed_s, strict=True)
    return [
        Load(len(took) / elapsed, *(1e3 * np.percentile(took, [50, 99])).tolist())
        for took, elapsed in each
    ]


def _turn(
    core: EngineCore, rule: CompiledRule, tokens: Iterator[Tokens], table: TableExit | None
) -> Iterator[float]:
    """Yield the seconds that each answer of a turn has taken."""
    ends_s = time.monotonic() + TURN_S

    def ask() -> Iterator[float]:
        """Let a client ask until a text goes to the engine; yield what the table took before."""
        while time.monotonic() < ends_s:
            row = _row(next(tokens), rule)
            if table is None or table.answer(row) is None:
                core.add([row])
                return
            yield time.monotonic() - row.admitted_s

    for _ in range(CLIENTS):
        yield from ask()
    while core:
        for row, result in core.step():
            if not isinstance(result, Answer):
                raise result
            yield time.monotonic() - row.admitted_s
            yield from ask()


def _row(tokens: Tokens, rule: CompiledRule) -> Row:
    admitted_s = time.monotonic()
    ids, types = tokens.input_ids, tokens.token_type_ids
    return Row(ids, types, rule, admitted_s=admitted_s, counted=tokens.counted)
