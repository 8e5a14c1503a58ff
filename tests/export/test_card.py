"""The bundle's card."""

from typing import Any

import pytest

from export.card import card
from serve.bundle.calibration import Calibration, ExitFigures, VariantCalibration
from serve.bundle.loader import Bundle
from serve.bundle.manifest import TrainedFor
from serve.policy.document import Policy
from serve.policy.ladder import Data
from serve.rules import LearnedRule

DATA = Data(name="dev", rows=10, sha256="0" * 64)


def test_card_gives_the_figures_and_the_command(bundle: Bundle) -> None:
    text = (bundle.folder / "README.md").read_text()
    assert "`offramp serve FOLDER --standalone`, where FOLDER is the path of `tiny`" in text
    assert f"{bundle.manifest.variants['int8'].parity.label_agreement:.1%}" in text
    assert "4 layers of width 32, exits after layers 1, 2, 3, 4, up to 64 tokens" in text
    assert "checkpoint" not in text
    assert "The model was compared with transformers 5" in text
    assert "logits of BertModel through the last exit's head to " in text


def test_card_names_the_original_system_and_its_rule(bundle: Bundle) -> None:
    rule = LearnedRule(threshold=0.005)
    changed = bundle.manifest.model_copy(
        update={
            "trained_for": TrainedFor(method="BERxiT", rule=rule),
            "policy": Policy(profiles={"original": rule}),
        }
    )
    text = card("mine", changed, Calibration(), {"fp32": 1, "int8": 1})
    assert "of `tiny-model`, read from its BERxiT checkpoint: 4 layers" in text
    assert 'checkpoint states: `{"rule":"learned","threshold":0.005}`' in text


@pytest.mark.parametrize(
    ("measured", "head", "row"),
    [
        (
            {"accuracy": 0.9, "metrics": {"f1": 0.8}},
            "| exit layer | accuracy % | F1 % |",
            "| 4 | 90.00 | 80.00 |",
        ),
        ({"metrics": {"pearson": 0.875}}, "| exit layer | Pearson x 100 |", "| 4 | 87.50 |"),
    ],
)
def test_each_figure_of_an_exit_has_a_column(
    bundle: Bundle, measured: dict[str, Any], head: str, row: str
) -> None:
    exits = (ExitFigures(layer=4, **measured),)
    calibration = Calibration(variants={"fp32": VariantCalibration(data=DATA, exits=exits)})
    sizes = dict.fromkeys(bundle.manifest.variants, 1)
    text = card("mine", bundle.manifest, calibration, sizes)
    assert "fp32. Measured on `dev` (10 rows" in text
    assert f"{head}\n| ---:" in text
    assert row in text
