import numpy as np
import pytest

from models.quality.losses import Losses
from models.quality.paths import Tried, candidate_paths
from models.quality.recorded import Recorded
from serve.rules import LearnedRule, check_rule
from serve.rules.traits import Task, Traits
from tests.serve.support.task_bundles import LABELS
from tests.support.recordings import said

EXITS = (2, 4, 6, 8)
NUM_ROWS = 30


def random_rows(task: Task, learned: bool) -> Recorded:
    """Return random rows whose exits become surer with depth."""
    draw = np.random.default_rng(0)
    shape = (4, NUM_ROWS, *((6,) if task == "token" else ()), len(LABELS[task]))
    logits = draw.standard_normal(shape) * np.arange(1, 5).reshape(-1, *(1,) * (len(shape) - 1))
    counted = np.ones((NUM_ROWS, 6), np.bool_) if task == "token" else None
    errors = draw.random((4, NUM_ROWS)).astype(np.float32) if learned else None
    traits = Traits(EXITS, LABELS[task], task, learned)
    return said(logits, traits, counted=counted, uncertainty=errors)


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("task", LABELS)
def test_paths_lead_from_full_depth_to_the_first_exit_and_no_text_ever_leaves_later(
    task: Task, learned: bool
) -> None:
    rows = random_rows(task, learned)
    losses = Losses({"disagreement": np.zeros((4, NUM_ROWS))}, frozenset())
    spread = float(rows.logits[-1].std())
    paths = candidate_paths(rows.traits, (0.5, 0.8, 1.2, 1.0), spread)
    kinds = {type(rule) for path in paths for rule in path.rules}
    assert (LearnedRule in kinds) == learned
    for path in paths:
        for rule in path.rules:
            check_rule(rule, rows.traits)
        exits = Tried.of(path, rows, losses).exits
        assert (np.diff(exits, axis=0) <= 0).all(), path.rules[0]
        assert exits[0].mean() >= 2
        assert not exits[-1].any()


def test_the_simplest_path_comes_first_and_none_twice() -> None:
    traits = Traits(EXITS, ("no", "yes"))
    paths = candidate_paths(traits, (0.5, 0.8, 1.2, 1.0), 0.0)
    first, last = paths[0].rules[0], paths[-1].rules[0]
    assert (first.rule, first.min_layer, paths[0].temperatures) == ("entropy", None, (1.0,) * 4)
    assert (last.rule, last.min_layer, paths[-1].temperatures) == (
        *("confidence", 6),
        (0.5, 0.8, 1.2, 1.0),
    )
    assert len(set(paths)) == len(paths)
