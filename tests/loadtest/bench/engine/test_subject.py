from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from loadtest.bench.engine.loaded_bundle import loaded, shape_of
from loadtest.bench.inputs import Shape, feeds_of
from loadtest.bench.one_graph import write_one_graph
from loadtest.bench.segments.comparison import fair_options
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from tests.support.tiny import DEPTH


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_all_forms_of_the_model_answer_alike(bundle: Bundle, precision: Precision) -> None:
    feeds = feeds_of(Shape(3, 9), vocabulary=200)
    mask = feeds["attention_mask"]
    with loaded(bundle, precision, 200, num_threads=1) as subject:
        step = subject.chain.start(feeds["input_ids"], mask, feeds["token_type_ids"])
        for index in range(1, DEPTH):
            step = subject.chain.advance(index, step.hidden, np.arange(3), mask)
        for one_graph in (*subject.one_graphs, *subject.every_head):
            np.testing.assert_array_equal(one_graph.run(feeds), step.logits)
        assert (subject.depth, subject.shape) == (DEPTH, shape_of(bundle.manifest))


def test_every_head_answers_in_the_one_graph(bundle: Bundle, tmp_path: Path) -> None:
    feeds = feeds_of(Shape(2, 7), vocabulary=200)
    path = write_one_graph(bundle, "fp32", tmp_path, every_head=True)
    session = ort.InferenceSession(path, fair_options(1)[0])
    last_first = session.run(None, feeds)
    with loaded(bundle, "fp32", 200, num_threads=1) as subject:
        step = subject.chain.start(*feeds.values())
        found = [step.logits]
        for index in range(1, DEPTH):
            args = step.hidden, np.arange(2), feeds["attention_mask"]
            step = subject.chain.advance(index, *args)
            found.append(step.logits)
    np.testing.assert_array_equal(np.array(last_first)[::-1], np.array(found))
