from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from loadtest.bench.inputs import random_texts
from loadtest.bench.one_graph import write_one_graph
from loadtest.bench.whole_model import OneGraph, answer_all, full_batches
from serve.bundle.loader import Bundle
from serve.engine.scheduler import BatchLimits
from serve.runtime.ort_session import session_options

LENGTHS = st.lists(st.integers(1, 60), max_size=80).map(np.array)


@given(LENGTHS, st.integers(1, 100), st.integers(1, 9), st.integers(20, 300))
def test_every_request_is_in_one_batch_within_the_limits_and_the_oldest_goes_first(
    lengths: np.ndarray, window: int, max_rows: int, max_tokens: int
) -> None:
    left = list(range(len(lengths)))
    for batch in full_batches(lengths, window, BatchLimits(max_rows, max_tokens)):
        assert batch[0] == left[0]
        assert set(batch) <= set(left[:window])
        assert len(batch) <= max_rows
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= max_tokens
        left = [i for i in left if i not in set(batch)]
    assert not left


def test_like_lengths_share_a_batch_and_fill_it() -> None:
    lengths = np.array([10, 50, 11, 49, 9, 51, 10, 50])
    limits = BatchLimits(max_rows=4, max_tokens=1000)
    batches = [sorted(batch.tolist()) for batch in full_batches(lengths, 8, limits)]
    assert batches == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_every_request_gets_the_label_it_gets_alone(bundle: Bundle, tmp_path: Path) -> None:
    one_graph = OneGraph(write_one_graph(bundle, "fp32", tmp_path), session_options(1)).run
    texts = random_texts([3, 30, 9, 12, 3, 64, 31, 8, 8, 8], vocabulary=200)
    limits = BatchLimits(max_rows=4, max_tokens=128)
    together = answer_all(one_graph, texts, 6, limits, pad_id=0)
    alone = [answer_all(one_graph, [text], 1, limits, pad_id=0)[0] for text in texts]
    assert together == alone
    assert len(set(alone)) > 1
