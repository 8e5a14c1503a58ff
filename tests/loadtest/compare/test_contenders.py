from pathlib import Path

import numpy as np
import pytest
import torch

from loadtest.bench.inputs import padded
from loadtest.bench.one_graph import write_one_graph
from loadtest.bench.whole_model import OneGraph
from loadtest.compare.last_head import LastHeadOnly
from serve.bundle.loader import Bundle
from serve.runtime.ort_session import plain_options
from tests.support.tiny import tiny_model

ROWS = [[2, 10, 11, 3], [2, 20, 21, 22, 23, 24, 3]]


def test_all_of_them_are_the_same_model(bundle: Bundle, tmp_path: Path) -> None:
    model = tiny_model()
    assert LastHeadOnly(model).encoder.config._attn_implementation == "sdpa"
    whole = OneGraph(write_one_graph(bundle, "fp32", tmp_path), plain_options(1))
    batched = whole.run(padded(ROWS, bundle.manifest.pad_id))
    for place, ids in enumerate(ROWS):
        inputs, mask = torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.long)
        with torch.inference_mode():
            expected = model(inputs, mask, torch.zeros_like(inputs))[-1].numpy()
            alone = LastHeadOnly(model).eval()(inputs, mask).logits.numpy()
        np.testing.assert_allclose(alone, expected, atol=1e-5)
        np.testing.assert_allclose(batched[place : place + 1], expected, atol=1e-4)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
