"""Figures with intervals, their table and sentence; rules on a recording; what is kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from models.experiments import measured as kept_on_disk
from models.experiments.figures import Column, Figure, by_column, table, verdict
from models.experiments.measured import Measured, measured
from models.experiments.tried import Tried, layers_within, threshold_at
from models.multi_exit import MultiExitModel
from models.quality.costs import LAYERS, MFLOPS
from models.quality.points import STATIC
from models.quality.rule_families import ENTROPY
from serve.rules import EntropyRule
from serve.rules.traits import Traits
from tests.models.conftest import tiny_tokenizer
from tests.support.recordings import margins, noisy, said
from tests.support.wordpiece import save_tokenizer


def of_texts(values: Any) -> Figure:
    return Figure(np.asarray(values, np.float64), 408)


def test_the_interval_over_seeds_is_students() -> None:
    values = [0.871, 0.88, 0.876]
    expected = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert tuple(Figure(np.array(values)).interval) == pytest.approx(expected)


def test_differences_are_taken_seed_by_seed() -> None:
    """Seeds differ by far more than the recipes, which differ by the same in every seed."""
    ours, others = by_column([[0.60, 0.59], [0.71, 0.70], [0.80, 0.79]])
    assert (ours - others).differs
    assert not (ours - Figure(others.values[::-1])).differs
    assert not (Figure(np.array([0.9])) - Figure(np.array([0.1]))).differs, "one seed shows nothing"


CHANGE = Column("", digits=2, signed=True)


@pytest.mark.parametrize(
    ("column", "figure", "expected"),
    [
        (Column(""), Figure(np.array([0.871, 0.88, 0.876])), "87.6 ± 1.1"),
        (Column("", 1.0, 2), Figure(np.array([4.0, 4.1, 4.2])), "4.10 ± 0.25"),
        (Column(""), Figure(np.array([0.5])), "50.0"),
        (Column(""), Figure(np.array([np.nan, 0.5])), "-"),
        (
            Column("", digits=2),
            of_texts([0.5, *np.linspace(0.4, 0.6, 1001)]),
            "50.00 (40.50 to 59.50)",
        ),
        (CHANGE, of_texts([-0.01, *np.linspace(-0.02, 0, 1001)]), "-1.00 (-1.95 to -0.05)"),
        (CHANGE, of_texts(np.zeros(1001)), "0 of 408: at most 0.73 %"),
        (CHANGE, Figure(np.zeros(1001), 277), "0 of 277: at most 1.08 %"),
    ],
)
def test_cells_hold_figures_with_their_intervals(
    column: Column, figure: Figure, expected: str
) -> None:
    assert column.cell(figure) == expected


def test_a_table_has_words_and_figures_and_gaps() -> None:
    rows = [["a", Figure(np.array([2.5]))], ["b", None]]
    lines = table(["rule", Column("layers", 1.0, 2)], rows)
    assert lines.splitlines() == [
        "| rule | layers |",
        "| --- | ---: |",
        "| a | 2.50 |",
        "| b | - |",
    ]


def test_the_verdict_names_what_is_shown_and_counts_the_rest() -> None:
    few = {"a": [0.02, 0.021, 0.019], "b": [-0.01, -0.01, -0.01], "c": [0.1, -0.1, 0.01]}
    gaps = {name: Figure(np.array(values)) for name, values in few.items()}
    assert verdict("Ours less theirs", gaps, Column("")) == (
        "Ours less theirs: higher for a (+2.0 ± 0.2); lower for b (-1.0 ± 0.0); no difference is "
        "shown for 1 of 3. The mean is above 0 for 2 of 3."
    )


def test_metric_at_a_depth_lies_between_the_two_nearest_rules() -> None:
    recorded = noisy("single_label")
    right = recorded.right
    assert right is not None
    found = Tried(recorded, {}).at(STATIC, 3.0)  # of exits at layers 2 and 4
    assert found is not None
    assert found.value == pytest.approx((right[1].mean() + right[2].mean()) / 2)
    strict = [EntropyRule(threshold=0.01), EntropyRule(threshold=0.02)]
    assert Tried(recorded, {"strict": strict}).at("strict", 1.0) is None


def test_interval_of_a_difference_is_of_the_same_drawn_texts() -> None:
    tried = Tried(noisy("single_label"), {})
    gap = tried.of(tried.points[STATIC][-1]) - tried.full
    assert (gap.value, *gap.interval) == (0, 0, 0)
    assert not gap.differs
    assert tried.full.interval.low < tried.full.value < tried.full.interval.high


def test_threshold_is_the_loosest_that_runs_the_wanted_layers() -> None:
    recorded = margins([[0.1, 9], [0.5, 9], [3, 9], [6, 9]], [1, 1, 1, 1])

    def layers(threshold: float) -> float:
        exits = recorded.taken(EntropyRule(threshold=threshold)).exits
        return float(np.array(recorded.traits.exits)[exits].mean())

    found = threshold_at(recorded, lambda t: EntropyRule(threshold=t), 3.0, 0.7)
    assert layers(found) == 3.0  # two of four leave at layer 2
    assert layers(found + 1e-3) < 3.0


def test_the_depth_at_a_loss_is_of_texts_that_did_not_choose_the_threshold() -> None:
    draw, share, rows = np.random.default_rng(0), 0.02, np.arange(1000)
    gold = draw.integers(2, size=1000)
    margin = np.stack([draw.normal((2 * gold - 1) * depth, 1.5) for depth in (1, 2, 3, 4)])
    logits = np.stack([np.zeros_like(margin), margin], axis=-1)
    recorded = said(logits, Traits((1, 2, 3, 4), ("no", "yes")), gold)
    margins = np.abs(recorded.logits[..., 1])  # of two labels as good as entropy
    answers = recorded.logits.argmax(axis=-1)

    def left(threshold: float, chosen: np.ndarray) -> tuple[float, float]:
        leaves = margins[:, chosen] > threshold
        leaves[-1] = True
        exits = leaves.argmax(axis=0)
        other = answers[exits, chosen] != answers[-1, chosen]
        return float(exits.mean() + 1), float(other.mean())

    found = []
    for tuning, other in ((rows[::2], rows[1::2]), (rows[1::2], rows[::2])):
        candidates = np.quantile(margins[:-1, tuning], np.linspace(0, 1, 32))
        allowed = [t for t in candidates if left(t, tuning)[1] <= share]
        found.append(left(min(allowed), other))
    within = layers_within(recorded, ENTROPY, share)
    assert within == pytest.approx(np.mean(found, axis=0), abs=0.01)
    assert layers_within(recorded, ENTROPY, 0.0).layers > within.layers


def test_what_was_measured_is_kept_until_model_or_data_change(
    make_model: Callable[..., MultiExitModel],
    write_data: Callable[..., Path],
    sentiment_lines: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[Measured] = []
    record = kept_on_disk.recorded

    def counted(*arguments: Any) -> Any:
        runs.append(record(*arguments))
        return runs[-1]

    monkeypatch.setattr(kept_on_disk, "recorded", counted)
    model, folder, kept = make_model(), tmp_path / "model", tmp_path / "kept"
    model.save(folder)
    save_tokenizer(tiny_tokenizer(), folder)
    one = write_data("one.tsv", sentiment_lines)
    other = write_data("other.tsv", sentiment_lines[:4])
    measured(folder, (one, other), kept)
    again = measured(folder, (one, other), kept)
    (found,) = runs
    assert again.recorded.num_rows == len(sentiment_lines) - 1 + 3
    for name in ("traits", "temperatures"):
        assert getattr(again.recorded, name) == getattr(found, name)
    for name in ("logits", "gold", "num_tokens"):
        np.testing.assert_array_equal(getattr(again.recorded, name), getattr(found, name))
    assert set(again.costs) >= {LAYERS, MFLOPS}
    measured(folder, (one,), kept)
    make_model(seed=1).save(folder)
    measured(folder, (one,), kept)
    assert len(runs) == 3
