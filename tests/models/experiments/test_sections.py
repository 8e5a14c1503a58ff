"""Each section's figures against a few lines of numpy, and sections that are written whole."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from models.experiments.context import Context
from models.experiments.figures import by_column
from models.experiments.measured import Measured
from models.experiments.run import Run
from models.experiments.sections import SECTIONS, deebert, difficulty, fastbert
from models.experiments.sections.condition import in_a_row, patiences, right_side
from models.experiments.sections.depths import ENTITIES, SHARES, SIMILARITY, at_depths, tables
from models.experiments.sections.elue import METRICS, REFERENCE
from models.experiments.sections.elue import places as places_of
from models.experiments.sections.patience import FULL, NAMES, VOTING, at_speed, scores
from models.experiments.sections.recipes import ROWS, recipe_table, runs_of
from models.experiments.sections.recipes import figures as recipe_figures
from models.multi_exit import MultiExitModel
from models.quality.costs import LAYERS, MFLOPS, MFLOPS_LINEAR, MS, RowCost, layer_costs
from models.quality.points import STATIC
from models.quality.recorded import Recorded
from models.quality.rule_families import ENTROPY, LEARNED, PATIENCE
from models.quality.scores import pearson
from serve.bundle.loader import sha256_of
from serve.rules import EntropyRule, NeverRule
from serve.rules.traits import Traits
from tests.models.conftest import tiny_tokenizer
from tests.support.recordings import margins, noisy, said


def with_costs(recorded: Recorded) -> Measured:
    exits, rows = recorded.logits.shape[:2]
    run = np.arange(1, exits + 1)[:, None] * np.linspace(10, 20, rows)
    asked = np.full((exits, rows), 0.5)
    layers = layer_costs(recorded.traits.exits, rows)
    costs = {LAYERS: layers, MFLOPS: RowCost(2 * run, asked), MFLOPS_LINEAR: RowCost(run, asked)}
    return Measured(recorded, costs)


def test_a_table_of_recipes_has_the_ratio_of_times_and_what_differs_from_joint() -> None:
    def seeds(half: float, layers: float, processor_s: float) -> list[list[float]]:
        every = (1, 2, 3)
        return [
            [0.88 + s / 100, half + s / 100, layers + s / 10, 0.011, processor_s * s] for s in every
        ]

    made_up = {"joint": (0.8, 4, 100), "helps": (0.82, 3.5, 150), "useless": (0.79, 4.2, 200)}
    grid = {name: by_column(seeds(*given)) for name, given in made_up.items()}
    lines, verdicts = recipe_table(grid)
    assert lines.splitlines()[3] == (
        "| helps | 90.0 ± 2.5 | 84.0 ± 2.5 | 3.70 ± 0.25 | 1.1 ± 0.0 | 1.50 ± 0.00 |"
    )
    last, half, layers = verdicts.splitlines()
    assert "Last exit, less that of `joint`: no difference is shown for 2 of 2" in last
    assert "higher for helps (+2.0 ± 0.0); lower for useless (-1.0 ± 0.0)" in half
    assert "lower for helps (-0.50 ± 0.00)" in layers


def test_recipes_that_differ_in_the_rule_alone_share_a_model() -> None:
    runs = [runs_of(row.options, "sst2", frozen=row.frozen)[0] for row in ROWS]
    assert len(set(runs)) == len(ROWS) - 1


def test_a_recipes_figures_are_of_the_last_exit_and_of_half_depth() -> None:
    recorded = noisy("single_label", num_rows=400)
    right = recorded.right
    assert right is not None
    last, half, layers, other = recipe_figures(recorded, ENTROPY)
    assert last == pytest.approx(right[-1].mean())
    assert right[0].mean() < half < 1
    assert 1 < layers <= 4
    assert other < 0.05


def test_speeds_cost_what_texts_run_and_ask() -> None:
    recorded = noisy("single_label")
    measured = with_costs(recorded)
    full, *speeds = fastbert.at_speeds(measured)
    rows, linear = np.arange(recorded.num_rows), measured.costs[MFLOPS_LINEAR].run
    assert full[2] == pytest.approx((linear[-1] + 0.5).mean())
    p = np.exp(recorded.logits - recorded.logits.max(axis=-1, keepdims=True)).astype(np.float64)
    p /= p.sum(axis=-1, keepdims=True)
    entropy = -(p * np.log(np.maximum(p, 1e-300))).sum(axis=-1) / np.log(3)
    for speed, found in zip(fastbert.SPEEDS, speeds, strict=True):
        sure = entropy < speed
        sure[-1] = True
        exits = sure.argmax(axis=0)
        operations = (linear[exits, rows] + 0.5 * (exits + 1)).mean()
        accuracy = (p[exits, rows].argmax(axis=-1) == recorded.gold).mean()
        layers = np.array(recorded.traits.exits)[exits].mean()
        assert found == pytest.approx([accuracy, layers, operations, full[2] / operations])


def test_operating_points_are_mean_operations_and_performance_in_points() -> None:
    measured = with_costs(noisy("single_label"))
    right, run = measured.recorded.right, measured.costs[MFLOPS].run
    assert right is not None
    rules = [NeverRule(), EntropyRule(threshold=2)]
    (flops, accuracy), (first, _) = places_of(measured, rules, "accuracy")
    assert flops == pytest.approx((run[-1] + 0.5).mean())
    assert accuracy == pytest.approx(100 * right[-1].mean())
    assert first == pytest.approx((run[0] + 0.5).mean())


def regression() -> Recorded:
    draw = np.random.default_rng(0)
    gold = draw.uniform(0, 5, 80)
    noise = draw.standard_normal((6, 80)) * np.linspace(2, 0.5, 6)[:, None]
    traits = Traits(tuple(range(1, 7)), ("x",), "regression")
    recorded = said((gold + noise)[..., None], traits, gold)
    known = np.abs(np.tanh(noise)).astype(np.float32)
    return replace(recorded, traits=replace(traits, learned=True), uncertainty=known)


def test_regressions_rules_are_compared_at_equal_depths() -> None:
    recorded = regression()
    found = at_depths(recorded, list(SIMILARITY))
    assert recorded.gold is not None
    rows = np.arange(recorded.num_rows)
    halves = [
        [pearson(each[rows % 2 == side], recorded.gold[rows % 2 == side]) for side in (0, 1)]
        for each in recorded.logits[2:5, :, 0]
    ]
    assert found[STATIC] == pytest.approx(np.mean(halves, axis=1))
    # Errors that are known exactly are a better signal than any.
    assert (found[LEARNED] > found[STATIC]).all()
    *_, against_static = tables({"joint": [found, found]}, SIMILARITY)
    assert "higher for joint at 50%" in against_static
    assert against_static.endswith("above 0 for 3 of 3.")


def test_tuned_patience_is_at_least_a_fixed_layer_where_the_texts_tune_it() -> None:
    """Both halves are the same texts."""
    recorded = regression()
    twice = recorded.of(np.repeat(np.arange(recorded.num_rows), 2))
    found = at_depths(twice, list(SIMILARITY))
    assert (found[PATIENCE] >= found[STATIC] - 1e-9).all()


def test_taggers_leave_by_the_entropy_of_their_tokens() -> None:
    recorded = noisy("token", num_rows=40)
    found = at_depths(recorded, list(ENTITIES))
    assert set(found) == set(ENTITIES)
    # A rule whose name begins another's is not taken for it.
    assert (found[ENTROPY] == at_depths(recorded, [ENTROPY])[ENTROPY]).all()
    assert all(len(each) == len(SHARES) for each in found.values())
    assert np.isfinite(found[ENTROPY]).all()


def test_all_rules_are_compared_at_the_same_depth() -> None:
    recorded = noisy("single_label", num_rows=200)
    right = recorded.right
    assert right is not None
    found = at_speed(recorded)
    assert set(found) <= {FULL, *NAMES}
    assert found[FULL].value == pytest.approx(right[2].mean())
    share = (4 / 1.5 - 2) / 2  # exits at layers 1, 2 and 4
    expected = (1 - share) * right[1].mean() + share * right[2].mean()
    assert found[STATIC].value == pytest.approx(expected)


def test_diversity_is_compared_by_rule_and_seed() -> None:
    models = [six_exits(seed) for seed in range(3)]
    found = scores(models)
    assert set(found) == {ENTROPY, PATIENCE, VOTING}
    assert found[VOTING].values.tolist() == [at_speed(each)[VOTING].value for each in models]


def six_exits(seed: int) -> Recorded:
    draw = np.random.default_rng(seed)
    gold = draw.integers(2, size=80)
    rows = (2 * gold - 1)[:, None] * 2 + 3 * draw.standard_normal((80, 6))
    return margins(rows.tolist(), gold.tolist())


def test_condition_holds_in_the_papers_example_from_patience_four_on() -> None:
    assert next(t for t in range(1, 12) if 12 - t < right_side(t, q=0.2, p=0.1)) == 4
    assert right_side(2, q=0.0, p=0.1) == math.inf, "exits that are never wrong have no bound"


def test_measured_patience_stands_beside_the_condition() -> None:
    draw = np.random.default_rng(1)
    gold = draw.integers(2, size=80)
    rows = (2 * gold - 1)[:, None] * 2 + 3 * draw.standard_normal((80, 5))
    recorded = margins(rows.tolist(), gold.tolist())
    right = (rows > 0) == gold[:, None]
    found = patiences(recorded)
    assert list(found) == [1, 2, 3]
    wrong = ~right[:, :-1]
    pairs = [(wrong[:, i] & wrong[:, i + 1]).mean() for i in range(3)]
    alone = [wrong[:, i].mean() * wrong[:, i + 1].mean() for i in range(3)]
    assert in_a_row(wrong.T, 2) == pytest.approx((np.mean(pairs), np.mean(alone)))
    q, p = wrong.mean(), 1 - right[:, -1].mean()
    assert all(holds == (5 - t < right_side(t, q, p)) for t, (holds, _) in found.items())
    answers = rows > 0
    leaves = [next((i for i in range(1, 5) if answer[i] == answer[i - 1]), 4) for answer in answers]
    accuracy = np.mean([right[row, place] for row, place in enumerate(leaves)])
    assert found[1][1].value == pytest.approx(accuracy - right[:, -1].mean())


def test_text_is_settled_where_all_later_exits_agree_with_the_last() -> None:
    same = np.random.default_rng(0).random((5, 40)) > 0.5
    same[-1] = True
    expected = [next(i for i in range(5) if same[i:, row].all()) for row in range(40)]
    assert difficulty.settled_at(same).tolist() == expected


def test_overthinking_has_a_baseline_of_chance() -> None:
    names = [column.head for column in difficulty.COLUMNS]
    rows = [[5, -5], [-5, 5], [5, 5], [-5, -5]]
    found = dict(zip(names, difficulty.figures(margins(rows, [1, 1, 1, 1])), strict=True))
    assert found == {
        "full depth %": 0.5,
        "best exit %": 0.5,
        "oracle %": 0.75,
        "oracle's layers": 3,  # 2, 4, 2 and 4
        "overthought %": 0.25,
        "by chance %": 0.25,  # wrong at the last, right at the first
        "rescued %": 0.25,
        "settled at the first exit %": 0.5,
        "after half depth %": 0.5,
    }
    right = np.random.default_rng(0).random((4, 200_000)) < np.array([0.6, 0.7, 0.65, 0.8])[:, None]
    seen = (right[:-1].any(axis=0) & ~right[-1]).mean()
    assert difficulty.by_chance(right) == pytest.approx(seen, abs=0.003)


def cut(run: Run) -> Measured:
    """Return answers that are the better the deeper the model is."""
    depth, draw, rows = int(run.options[1]), np.random.default_rng(run.seed), 200
    if run.data == "stsb":
        gold: Any = draw.uniform(0, 5, rows)
        noise = draw.normal(0, 3 / depth, (1, rows))
        found = said((gold + noise)[..., None], Traits((depth,), ("score",), "regression"), gold)
    else:
        gold = draw.integers(2, size=rows)
        right = draw.random(rows) < 0.6 + depth / 20
        logits = np.eye(2)[np.where(right, gold, 1 - gold)][None]
        found = said(logits, Traits((depth,), ("no", "yes")), gold)
    each = np.full((1, rows), 10.0 * depth)
    mflops = RowCost(each, np.full_like(each, 0.5))
    return Measured(found, {LAYERS: layer_costs((depth,), rows), MFLOPS: mflops})


def test_the_references_file_holds_every_depth_and_seed(tmp_path: Path) -> None:
    one, other = tmp_path / "dev.tsv", tmp_path / "held-out.tsv"
    one.write_text("one")
    other.write_text("other")
    files = {"sst2": (one, other), "mrpc": (one,), "stsb": (other,)}
    page = tmp_path / "page.md"
    context = SimpleNamespace(measured=cut, files=lambda name: files[name], page=page)
    (text,) = REFERENCE.write(context)  # type: ignore[arg-type]
    assert [line.split(" | ")[2] for line in text.splitlines()[2:]] == [
        f"{10 * depth + 0.5:.0f}" for depth in range(1, 7)
    ]
    stored = json.loads((tmp_path / "reference/minilm-elue.json").read_text())
    assert len(REFERENCE.runs) == 6 * 3 * len(METRICS)
    texts = {model["data"]["task"]: model["data"]["sha256"] for model in stored["models"]}
    assert (texts["mrpc"], texts["stsb"]) == (sha256_of(one), sha256_of(other))
    assert len(set(texts.values())) == 3, "two files together are other texts than either"
    points = [
        point
        for model in stored["models"]
        if model["data"]["task"] == "mrpc"
        for point in model["rules"]["families"]["static"]
        if point["costs"]["layers"] == 3
    ]
    assert len([point["metrics"]["accuracy_and_f1"] for point in points]) == 3
    assert [point["costs"]["mflops"] for point in points] == [30.5] * 3


@pytest.fixture
def context(
    places: Context, make_model: Callable[..., MultiExitModel], monkeypatch: pytest.MonkeyPatch
) -> Context:
    """SST-2's two models are there, with bundles that nothing reads; MRPC's and RTE's are not."""
    for seed, name in enumerate(("sst2-minilm", "sst2-mpnet")):
        make_model(seed=seed).save(places.zoo / name)
        tiny_tokenizer().save(str(places.zoo / name / "tokenizer.json"))
        (places.bundles / name).mkdir(parents=True)
        (places.bundles / name / "manifest.json").write_text("{}")

    def served(_bundles: object, _precisions: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(costs=lambda tokens: {MS: layer_costs((1, 2, 3), len(tokens))})]

    monkeypatch.setattr(deebert, "open_models", served)
    return places


@pytest.mark.parametrize("name", [name for name, section in SECTIONS.items() if section.models])
def test_section_tells_of_the_models_that_are_there(name: str, context: Context) -> None:
    found = "\n\n".join(SECTIONS[name].write(context))
    assert "sst2-minilm" in found
    assert "sst2-mpnet" in found
    assert "mrpc" not in found
    assert "nan" not in found.split()


def test_time_saved_is_that_of_the_layers_that_do_not_run(context: Context) -> None:
    (first, *_) = deebert.points_of(context, "sst2-minilm")
    recorded = context.measured("sst2-minilm").recorded
    rule = EntropyRule(threshold=deebert.threshold_saving(recorded, 0.21))
    layers = np.array(recorded.traits.exits)[recorded.taken(rule).exits]
    assert first[0] == pytest.approx(1 - layers.mean() / 3)
    assert 0 <= first[0] <= 0.21
