"""What docs/rules.md calls looser never makes a row leave later, whatever the heads say."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.rules.criterion import HeadOutput
from serve.rules.traits import Traits
from tests.serve.support.judging import NUM_EXITS, THREE, judged, rule

NUM_ROWS, NUM_TOKENS = 20, 4
SETS, TAGS = replace(THREE, task="multi_label"), replace(THREE, task="token")
STARS = Traits(THREE.exits, ("stars",), "regression")


class Knob(NamedTuple):
    """A field of a rule, turned from strict (0) to loose (1)."""

    rule: str
    fields: Callable[[float], dict[str, Any]]
    traits: tuple[Traits, ...] = (THREE,)


def threshold(looser: Callable[[float], float], **more: Any) -> Callable[[float], dict[str, Any]]:
    return lambda t: {"threshold": looser(t), **more}


EVERY = (THREE, SETS, TAGS)
KNOBS = (
    Knob("entropy", threshold(lambda t: t), EVERY),
    Knob("normalized_entropy", threshold(lambda t: t), EVERY),
    Knob("confidence", threshold(lambda t: 1 - t), EVERY),
    Knob("margin", threshold(lambda t: 1 - t), EVERY),
    Knob("learned", threshold(lambda t: t), (replace(THREE, learned=True),)),
    Knob("classes", lambda t: {"thresholds": {"a": 1 - t, "b": 1 - t / 2}}),
    Knob("decision", lambda t: {"leave_above": {"a": 1 - t}}, EVERY),
    Knob("decision", lambda t: {"leave_below": {"a": t, "b": 2 * t / 3}}, EVERY),
    Knob("confident_patience", threshold(lambda t: t, patience=2), EVERY),
    Knob("confident_patience", lambda t: {"threshold": 0.5, "patience": turns(t)}, EVERY),
    Knob("patience", lambda t: {"patience": turns(t)}, EVERY),
    Knob("patience", lambda t: {"patience": turns(t), "tolerance": 1}, (STARS,)),
    Knob("patience", lambda t: {"patience": 2, "tolerance": 0.01 + 4 * t}, (STARS,)),
    Knob("voting", lambda t: {"votes": 0.5 + 5 * (1 - t)}),
    Knob("voting", lambda t: {"share": 0.1 + 2 * (1 - t), "exponent": 0.5}),
    Knob("voting", lambda t: {"share": 1.8, "exponent": 0.6 * (1 - t)}),
)
CASES = [(knob, traits) for knob in KNOBS for traits in knob.traits]


def turns(looseness: float) -> int:
    return 1 + round(5 * (1 - looseness))


def some_heads(traits: Traits, seed: int) -> list[HeadOutput]:
    """Return what every exit says of all rows; a few rows get no number."""
    generator = np.random.default_rng(seed)
    tokens = (NUM_TOKENS,) if traits.task == "token" else ()
    shape = (NUM_EXITS, NUM_ROWS, *tokens, len(traits.labels))
    logits = generator.normal(0, 2.5, shape).astype(np.float32)
    logits[generator.random((NUM_EXITS, NUM_ROWS)) < 0.05] = np.nan
    errors = generator.random((NUM_EXITS, NUM_ROWS)).astype(np.float32)
    counted = generator.random((NUM_ROWS, *tokens)) < 0.8 if tokens else None
    return [HeadOutput(*each, counted) for each in zip(logits, errors, strict=True)]


@pytest.mark.parametrize(("knob", "traits"), CASES)
@given(looseness=st.tuples(st.floats(0, 1), st.floats(0, 1)), seed=st.integers(0, 2**32 - 1))
def test_loosening_never_makes_a_row_leave_later(
    knob: Knob, traits: Traits, looseness: tuple[float, float], seed: int
) -> None:
    heads = some_heads(traits, seed)
    rules = [rule(knob.rule, **knob.fields(t)) for t in sorted(looseness)]
    tight, loose = (judged([each] * NUM_ROWS, heads, traits) for each in rules)
    assert all(b.index <= a.index for a, b in zip(tight, loose, strict=True))
