"""Seconds of lone texts under several rules, timed in turns on one thread."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.quality.source import BundleSource
from serve.bundle.loader import load_bundle
from serve.engine.core import EngineCore
from serve.engine.row import Row
from serve.engine.scheduler import BatchLimits
from serve.engine.shape import ModelShape
from serve.rules import CompiledRule, ExitRule
from serve.runtime.placement import Placement, build_runner
from serve.tokenization.tokenizer import Text, Tokens

_TURNS = 2


def seconds_in_turns(
    bundle: Path, rules: Sequence[ExitRule], texts: Sequence[Text]
) -> NDArray[np.float64]:
    """Return (rules, texts) seconds from tokens to answer, through the server's engine.

    Every text runs alone, in fp32, under one rule after the other, so that a busy moment of the
    machine meets all rules alike; the faster of two turns counts. Exits have no temperatures, as
    in the papers.

    Args:
        bundle: an exported model.
        rules: tried in this order, and in the opposite order in the next turn.
        texts: to be answered.
    """
    source = BundleSource(load_bundle(bundle), Placement("cpu", "fp32"))
    shape = ModelShape(source.traits, (1.0,) * len(source.traits.exits), source.pad_id)
    runner = build_runner(source.bundle, source.placement, 1)
    core = EngineCore(
        runner, shape, BatchLimits(), time.monotonic, lambda stats: None, lambda: False
    )
    compiled, tokens = [shape.compile(rule) for rule in rules], source.read(texts)
    for rule in compiled:
        _answer(core, rule, tokens[0])
    found = np.full((len(rules), len(texts)), np.inf)
    for turn in range(_TURNS):
        order = range(len(rules))[:: 1 if turn % 2 == 0 else -1]
        for place, each in enumerate(tokens):
            for index in order:
                taken_s = _answer(core, compiled[index], each)
                found[index, place] = min(found[index, place], taken_s)
    return found


def _answer(core: EngineCore, rule: CompiledRule, tokens: Tokens) -> float:
    began = time.perf_counter()
    core.add([Row(tokens.input_ids, tokens.token_type_ids, rule, admitted_s=time.monotonic())])
    while core:
        core.step()
    return time.perf_counter() - began
