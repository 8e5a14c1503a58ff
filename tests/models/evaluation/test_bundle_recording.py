from pathlib import Path

import numpy as np
import pytest

from models.evaluation.bundle_recording import read_texts, record
from serve.bundle.loader import Bundle, load_bundle
from serve.engine.warm_up import steps
from serve.rules.traits import Task
from serve.runtime.placement import Placement, build_runner
from serve.tokenization.length_bounds import Text
from tests.serve.support.task_bundles import EXITS, LABELS, Kind, write_task_bundle

CPU = Placement("cpu", "fp32")
# Of many lengths, and out of order.
TEXTS = [Text(" ".join(f"w{(7 * i + k) % 196}" for k in range(1 + 11 * i % 40))) for i in range(70)]


def test_each_row_is_recorded_as_if_it_ran_alone(bundle: Bundle) -> None:
    tokens = read_texts(bundle, TEXTS)
    recorded = record(bundle, CPU, tokens)
    assert recorded.logits.shape == (4, len(TEXTS), 3)
    runner = build_runner(bundle, CPU, 1)
    for row in (0, 33, 69):
        ids = tokens[row].input_ids[None]
        alone = [output.logits[0] for output in steps(runner, ids, np.ones_like(ids), 0 * ids)]
        assert recorded.num_tokens[row] == ids.shape[1]
        assert np.allclose(recorded.logits[:, row], alone, atol=1e-4)


def test_a_tagger_is_recorded_per_token_and_special_tokens_do_not_count(tmp_path: Path) -> None:
    bundle = load_bundle(write_task_bundle(tmp_path, Kind("token")))
    recorded = record(bundle, CPU, read_texts(bundle, TEXTS))
    assert recorded.logits.shape == (3, 70, recorded.num_tokens.max(), 5)
    assert recorded.counted is not None
    assert (recorded.counted.sum(axis=1) == recorded.num_tokens - 2).all()


def test_errors_that_heads_predict_are_recorded(tmp_path: Path) -> None:
    bundle = load_bundle(write_task_bundle(tmp_path, Kind("single_label", learned=True)))
    recorded = record(bundle, CPU, read_texts(bundle, TEXTS))
    assert recorded.uncertainty is not None
    assert len(np.unique(recorded.uncertainty)) > 100


@pytest.mark.parametrize("task", LABELS)
def test_only_active_exits_are_recorded(task: Task, tmp_path: Path) -> None:
    bundle = load_bundle(write_task_bundle(tmp_path, Kind(task)))
    tokens = read_texts(bundle, TEXTS)
    fewer = record(bundle.presenting((1, 4)), CPU, tokens)
    chosen = [EXITS.index(1), EXITS.index(4)]
    assert np.array_equal(fewer.logits, record(bundle, CPU, tokens).logits[chosen])


def test_progress_counts_every_row(bundle: Bundle) -> None:
    done: list[int] = []
    record(bundle, CPU, read_texts(bundle, TEXTS), done.append)
    assert sum(done) == len(TEXTS)
