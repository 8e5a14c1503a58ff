"""No bit of an answer depends on batch mates or padding, in fp32 and in int8."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serve.bundle.manifest import Precision
from tests.export.conftest import OpenChain
from tests.support.tiny import SPECIAL, WORDS

VOCABULARY = len(SPECIAL) + len(WORDS)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    length=st.integers(2, 40),
    padding=st.integers(0, 24),
    mates=st.integers(0, 20),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_row_gets_the_same_bits_in_any_company(
    open_chain: OpenChain, precision: Precision, length: int, padding: int, mates: int, seed: int
) -> None:
    chain = open_chain(precision)
    generator = np.random.default_rng(seed)
    row = generator.integers(0, VOCABULARY, length)
    shape = (mates + 1, length + padding)
    ids = generator.integers(0, VOCABULARY, shape)
    mask = (np.arange(shape[1]) < generator.integers(1, shape[1] + 1, (mates + 1, 1))).astype(int)
    place = generator.integers(mates + 1)
    ids[place], mask[place] = 0, 0
    ids[place, :length], mask[place, :length] = row, 1

    alone = chain.run(row[None], np.ones((1, length), np.int64))
    together = chain.run(ids, mask)

    for one, many in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.hidden[0], many.hidden[place, :length])
        np.testing.assert_array_equal(one.logits[0], many.logits[place])


def test_a_loud_mate_does_not_coarsen_a_quiet_row(open_chain: OpenChain) -> None:
    chain = open_chain("int8")
    generator = np.random.default_rng(1)
    hidden = generator.standard_normal((2, 8, 32)).astype(np.float32)
    hidden[1] *= 1e4
    keep, mask = np.arange(2), np.ones((2, 8), np.int64)
    together = chain.advance(1, hidden, keep, mask)
    alone = chain.advance(1, hidden[:1], keep[:1], mask[:1])
    np.testing.assert_array_equal(together.hidden[0], alone.hidden[0])
