"""Layer 0: a linear model over hashed token n-grams, and the rules that look at it."""

from dataclasses import replace

import numpy as np
import pytest

from serve.errors import InvalidRule
from serve.policy.limits import Limits
from serve.rules import compile_rule
from serve.rules.replay import Recording
from serve.rules.table import MOST_TOKENS, NgramTable, ngram_rows, table_confidence
from serve.rules.traits import Traits
from tests.serve.support.judging import NUM_EXITS, THREE, rule, saying

RNG = np.random.default_rng(1)
BIAS = (0.1, -0.2, 0.0)
ROWS = RNG.standard_normal((50 + 32, 3)).astype(np.float16)
TABLE = NgramTable(ROWS, 32, BIAS)
TRAITS = replace(THREE, table_temperature=2.0)


def test_logits_are_ten_times_the_mean_row_of_all_short_ngrams() -> None:
    a, b, c = 3, 49, 7
    pairs = [(1_000_003 * x + 7_919 * y) % 32 for x, y in ((a, b), (b, c))]
    triple = (1_000_003 * a + 7_919 * b + 104_729 * c + 17) % 32
    rows = [a, b, c, *(50 + place for place in (*pairs, triple))]
    assert ngram_rows(np.array([a, b, c]), 50, 32).tolist() == rows
    mean = ROWS[rows].astype(np.float64).mean(axis=0)
    assert TABLE.logits(np.array([a, b, c])) == pytest.approx(10 * mean + BIAS, abs=1e-4)
    assert ngram_rows(np.array([a]), 50, 32).tolist() == [a]


def test_a_text_has_the_same_logits_and_confidence_alone_and_among_others() -> None:
    texts = [RNG.integers(0, 50, length) for length in (1, 2, 9, 25, MOST_TOKENS)]
    together = TABLE.of_texts(texts)
    for task in ("single_label", "multi_label"):
        sure = table_confidence(task, together, 1.3)
        for place, ids in enumerate(texts):
            own = TABLE.logits(ids)
            assert own.tobytes() == together[place].tobytes()
            assert table_confidence(task, own, 1.3).tobytes() == sure[place].tobytes()


def test_a_longer_text_is_not_judged() -> None:
    ids = np.ones(MOST_TOKENS + 1, np.int64)
    assert np.isnan(TABLE.logits(ids)).all()
    assert np.isnan(table_confidence("single_label", TABLE.logits(ids), 1.0))


def test_confidence_is_that_of_the_least_sure_of_several_labels() -> None:
    logits = np.array([np.log(9), np.log(0.25), 8], np.float32)
    assert table_confidence("multi_label", logits, 1.0) == pytest.approx(0.8)
    assert table_confidence("single_label", np.log([0.1, 0.7, 0.2]), 1.0) == pytest.approx(0.7)


# What the table says of three rows, as probabilities at its temperature; of the last, nothing.
SAID = 2 * np.log(np.array([[0.9, 0.05, 0.05], [0.5, 0.3, 0.2], [np.nan] * 3], np.float32))
EXITS = np.concatenate([saying("bbbbbb", sureness=5)] * 3, axis=1)
RECORDING = Recording(TRAITS, (1.0,) * NUM_EXITS, np.concatenate([SAID[None], EXITS]))
ALONE = Recording(THREE, (1.0,) * NUM_EXITS, EXITS)


def test_rows_leave_at_the_table_that_it_is_sure_of() -> None:
    taken = RECORDING.taken(rule("never", table=0.8))
    assert taken.exits.tolist() == taken.heads.tolist() == [0, NUM_EXITS, NUM_EXITS]
    assert taken.deciding.argmax(axis=1).tolist() == [0, 1, 1]
    assert np.array(TRAITS.layers)[taken.exits].tolist() == [0, *THREE.exits[-1:] * 2]


@pytest.mark.parametrize("found", [{}, {"table": 0.8, "min_layer": 1}])
def test_without_a_word_no_rule_looks_at_the_table(found: dict[str, float]) -> None:
    entropy = rule("entropy", threshold=0.3, **found)
    taken, alone = RECORDING.taken(entropy), ALONE.taken(rule("entropy", threshold=0.3))
    assert taken.exits.tolist() == [1 + place for place in alone.exits]
    assert taken.logits.tolist() == alone.logits.tolist()


def test_some_exits_alone_keep_the_table() -> None:
    some = RECORDING.at([1, NUM_EXITS - 1])
    assert some.traits.layers == (0, THREE.exits[1], THREE.exits[-1])
    assert some.taken(rule("never", table=0.8)).exits.tolist() == [0, 2, 2]


def test_a_model_without_a_table_follows_no_rule_about_one() -> None:
    with pytest.raises(InvalidRule, match="no table"):
        compile_rule(rule("never", table=0.8), THREE)
    with pytest.raises(InvalidRule, match="decided by exits alone"):
        decision = rule("decision", leave_above={"a": 0.9}, table=0.8)
        compile_rule(decision, replace(TRAITS, labels=THREE.labels))


def test_a_least_layer_of_the_policy_keeps_the_table_out() -> None:
    wanted = rule("entropy", threshold=0.3, table=0.8)
    assert Limits().applied_to(wanted) is wanted
    assert Limits(min_layer=1).applied_to(wanted) == rule("entropy", threshold=0.3)


def test_the_rule_in_words_says_the_table_last() -> None:
    wanted = rule("confidence", threshold=0.9, min_layer=2, table=0.95)
    assert wanted.text() == "confidence >= 0.9 from layer 2 or table >= 0.95"
    assert "table" not in rule("never").model_dump()
    assert Traits((1,), ("a", "b"), table_temperature=1.0).layer_of(-1) == 0
