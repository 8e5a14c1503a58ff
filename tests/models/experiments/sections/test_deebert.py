"""Accuracy against time saved."""

from pathlib import Path

import numpy as np
import pytest

from models.experiments.sections.deebert import Point, Published, sentence, time_saved
from models.experiments.sections.sampled import Sampled
from models.experiments.sections.turns import seconds_in_turns
from serve.engine.core import EngineCore
from serve.engine.row import Outcome
from serve.rules import LayerRule, NeverRule
from serve.tokenization.tokenizer import Text


def test_time_saved_is_a_share_of_all_texts_seconds() -> None:
    draw = np.random.default_rng(0)
    full = draw.uniform(1, 2, 50)
    seconds = np.stack([full, full / 2, full])
    half, none = time_saved(seconds)
    assert half.value == pytest.approx(0.5)
    assert tuple(half.interval) == pytest.approx((0.5, 0.5))
    assert none.value == 0


def test_every_text_is_timed_under_every_rule(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    step = EngineCore.step

    def noted(core: EngineCore) -> list[Outcome]:
        outcomes = step(core)
        left.extend(each.result.exit_index for each in outcomes)  # type: ignore[union-attr]
        return outcomes

    monkeypatch.setattr(EngineCore, "step", noted)
    texts = [Text("w1 w2", None), Text("w3", None), Text("w4 w5 w6", None)]
    seconds = seconds_in_turns(bundle_folder, [NeverRule(), LayerRule(layer=2)], texts)
    assert seconds.shape == (2, 3)
    assert np.isfinite(seconds).all()
    assert left[2:] == [3, 1] * 3 + [1, 3] * 3  # after a first answer of each rule


def test_sentence_names_the_rows_whose_loss_is_shown() -> None:
    def point(lost: float) -> Point:
        values = lost + 0.001 * np.linspace(-1, 1, 1001)
        return Point(408, Sampled(np.full(1001, 0.3)), Sampled(values), Published(-0.6, 40))

    assert "in 1 of 3 rows: a at 40 %." in sentence({"a": [point(-0.01)], "b": [point(0.0)] * 2})
    assert sentence({"a": [point(0.0)]}).endswith("in 0 of 1 rows.")
