from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from loadtest.bench.promises import HEAD, main, natural_choice, rows_of_table
from models.certification.losses import TextLosses
from models.certification.paths import Path as RulePath
from models.certification.replay import Replay
from serve.rules import LayerRule
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.tiny import WORDS

EXITS = tuple(range(1, 41))


@pytest.fixture
def replay() -> Replay:
    """Return 2,000 texts, of which up to a tenth are lost, the more the sooner they leave."""
    soonest = np.random.default_rng(0).random(2000)
    exits = np.repeat(np.arange(39, -1, -1)[:, None], 2000, axis=1)
    lost = (soonest < 0.1 * (39 - np.arange(40)[:, None]) / 39).astype(np.float64)
    rules = tuple(LayerRule(layer=layer) for layer in reversed(EXITS))
    losses = TextLosses({"disagreement": lost}, frozenset({"disagreement"}))
    return Replay(RulePath(rules, (1.0,) * 40), exits, losses, EXITS)


def test_certified_promises_hold_and_the_natural_choice_breaks_many(replay: Replay) -> None:
    rows = list(rows_of_table(replay, count=40, delta=0.05))
    broken: dict[str, list[float]] = {"certified": [], "natural": []}
    for _, _, choice, layers, _, _, share in rows:
        broken[choice].append(float(share))
        assert 1 <= float(layers) <= 40
    assert len(broken["certified"]) == len(broken["natural"]) == 5
    assert max(broken["certified"]) <= 5 + 3 * 1.6
    assert np.mean(broken["natural"]) > 25


def test_the_natural_choice_is_the_fastest_rule_within_the_bound_wherever_it_stands() -> None:
    choose = natural_choice(0.02)
    assert choose(np.array([0, 0.03, 0.02, 0.04])) == 3
    assert choose(np.array([0.03])) == 0


def test_the_command_prints_a_table_for_a_bundle(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{' '.join(draw.choice(WORDS, 5))}\n" for _ in range(60)))
    app = typer.Typer()
    app.command()(main)
    bundle = write_task_bundle(tmp_path, Kind("single_label"), alike=True)
    options = ["--data", str(texts), "--unlabelled", "--splits", "3"]
    result = CliRunner().invoke(app, [str(bundle), *options])
    assert result.exit_code == 0, result.output
    lines = [line for line in result.output.splitlines() if line.startswith("|")]
    assert lines[0] == f"| {' | '.join(HEAD)} |"
    assert len(lines) == 2 + 2 * 5 * 2
