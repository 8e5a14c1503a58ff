"""Means over seeds, and recordings that are kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from models.experiments import figures
from models.experiments.figures import Mean, difference, measured
from models.multi_exit import MultiExitModel
from models.quality.costs import LAYERS, MFLOPS
from tests.models.conftest import tiny_tokenizer
from tests.support.wordpiece import save_tokenizer


def test_the_interval_is_students() -> None:
    values = [0.871, 0.88, 0.876]
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    mean = Mean.of(values)
    assert mean.value - mean.half == pytest.approx(low)
    assert mean.value + mean.half == pytest.approx(high)
    assert mean.shown() == "87.6 ± 1.1"


def test_one_seed_has_no_interval_and_shows_no_difference() -> None:
    assert Mean.of([0.5]).shown() == "50.0"
    assert not difference([0.9], [0.1]).differs


def test_differences_are_taken_seed_by_seed() -> None:
    """Seeds differ by far more than the recipes, which differ by the same in every seed."""
    ours, others = [0.60, 0.71, 0.80], [0.59, 0.70, 0.79]
    assert difference(ours, others).differs
    assert not difference(ours, others[::-1]).differs


def test_what_was_measured_is_kept_until_model_or_data_change(
    make_model: Callable[..., MultiExitModel],
    write_data: Callable[..., Path],
    sentiment_lines: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[Path] = []
    run = figures._run

    def counted(folder: Path, *rest: Any) -> figures.Measured:
        runs.append(folder)
        return run(folder, *rest)

    monkeypatch.setattr(figures, "_run", counted)
    model, folder, kept = make_model(), tmp_path / "model", tmp_path / "kept"
    model.save(folder)
    save_tokenizer(tiny_tokenizer(), folder)
    one = write_data("one.tsv", sentiment_lines)
    other = write_data("other.tsv", sentiment_lines[:4])
    found = measured(folder, (one, other), kept)
    again = measured(folder, (one, other), kept)
    assert len(runs) == 1
    assert again.recorded.num_rows == len(sentiment_lines) - 1 + 3
    assert again.recorded.traits == found.recorded.traits
    assert again.recorded.temperatures == found.recorded.temperatures
    for name in ("logits", "gold", "num_tokens"):
        np.testing.assert_array_equal(getattr(again.recorded, name), getattr(found.recorded, name))
    assert set(again.costs) >= {LAYERS, MFLOPS}
    np.testing.assert_array_equal(again.costs[MFLOPS].run, found.costs[MFLOPS].run)
    measured(folder, (one,), kept)
    make_model(seed=1).save(folder)
    assert not np.allclose(
        measured(folder, (one,), kept).recorded.logits[-1, 0], found.recorded.logits[-1, 0]
    )
    assert len(runs) == 3
