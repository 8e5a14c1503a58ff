"""The bundle's card."""

from export.card import card
from serve.bundle.calibration import (
    Calibration,
    ExitFigures,
    OperatingPoint,
    VariantCalibration,
)
from serve.bundle.loader import Bundle
from serve.bundle.manifest import TrainedFor
from serve.policy.document import Policy
from serve.policy.ladder import Data
from serve.rules import LearnedRule, NeverRule

DATA = Data(name="dev", rows=10, sha256="0" * 64)


def figures_in(bundle: Bundle, exit_: ExitFigures, point: OperatingPoint) -> str:
    variant = VariantCalibration(data=DATA, exits=(exit_,), operating_points=(point,))
    sizes = dict.fromkeys(bundle.manifest.variants, 1)
    return card("mine", bundle.manifest, Calibration(variants={"fp32": variant}), sizes)


def test_card_gives_the_figures_and_the_command(bundle: Bundle) -> None:
    text = (bundle.folder / "README.md").read_text()
    assert "offramp serve tiny" in text
    assert f"{bundle.manifest.variants['int8'].parity.label_agreement:.1%}" in text
    assert "4 layers of width 32, exits after layers 1, 2, 3, 4, up to 64 tokens" in text
    assert "checkpoint" not in text


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


def test_accuracy_and_other_figures_have_a_column_each(bundle: Bundle) -> None:
    measured = {"accuracy": 0.9, "metrics": {"f1": 0.8}}
    point = OperatingPoint(rule=NeverRule(), agreement=0.99, mean_exit_layer=4, **measured)
    text = figures_in(bundle, ExitFigures(layer=4, **measured), point)
    assert "| rule | accuracy % | F1 % | same answer as the last exit % | mean exit layer |" in text
    assert '| `{"rule":"never"}` | 90.00 | 80.00 | 99.00 | 4.00 |' in text


def test_regression_has_correlations_and_no_agreement(bundle: Bundle) -> None:
    measured = {"metrics": {"pearson": 0.875}}
    point = OperatingPoint(rule=NeverRule(), mean_exit_layer=4, **measured)
    text = figures_in(bundle, ExitFigures(layer=4, **measured), point)
    assert '| `{"rule":"never"}` | 87.50 | - | 4.00 |' in text
