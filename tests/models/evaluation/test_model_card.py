"""The model card: figures are rewritten, hand-written sections stay."""

from pathlib import Path

from models.evaluation.model_card import write_card, write_training
from models.evaluation.tables import render_figures
from serve.bundle.calibration import ExitFigures, OperatingPoint, VariantCalibration
from serve.policy.ladder import Data
from serve.rules import ConfidenceRule, EntropyRule, LayerRule, NeverRule, PatienceRule
from serve.rules.traits import Traits
from tests.support.traits import two_labels

LABELS = two_labels((1, 3))
BALANCED = EntropyRule(threshold=0.3)


def figures(accuracy: float) -> VariantCalibration:
    points = [
        OperatingPoint(rule=BALANCED, accuracy=accuracy, agreement=0.98, mean_exit_layer=2.5),
        OperatingPoint(
            rule=PatienceRule(patience=2), accuracy=0.9, agreement=0.97, mean_exit_layer=3.125
        ),
    ]
    return VariantCalibration(
        data=Data(name="sst2/dev.tsv", rows=872, sha256="ab" * 32),
        exits=(ExitFigures(layer=1, accuracy=0.8), ExitFigures(layer=3, accuracy=0.912)),
        operating_points=tuple(points),
    )


def test_fresh_card_shows_data_exits_and_rules(tmp_path: Path) -> None:
    write_card(tmp_path, LABELS, figures(0.911))
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\n")
    assert "`sst2/dev.tsv` (872 rows" in card
    assert "| 3 | 91.20 |" in card
    assert "| entropy < 0.30 | 91.10 | 98.00 | 2.50 |" in card
    assert "| patience 2 | 90.00 | 97.00 | 3.12 |" in card


def test_new_figures_replace_the_old_and_keep_what_was_written_by_hand(tmp_path: Path) -> None:
    write_card(tmp_path, LABELS, figures(0.911))
    path = tmp_path / "README.md"
    path.write_text(path.read_text() + "\n## Limits\n\nShort English reviews only.\n")
    write_card(tmp_path, LABELS, figures(0.5))
    card = path.read_text()
    assert "50.00" in card
    assert "91.10" not in card
    assert card.count("| exit layer | accuracy % |") == 1
    assert card.endswith("\n## Limits\n\nShort English reviews only.\n")
    write_card(tmp_path, LABELS, figures(0.5))
    assert path.read_text() == card, "the same figures change nothing"


def test_card_of_a_regression_shows_correlations_and_no_agreement(tmp_path: Path) -> None:
    rule = PatienceRule(patience=1, tolerance=0.2)
    measured = {"pearson": 0.8712, "spearman": 0.868}
    calibration = VariantCalibration(
        data=Data(name="stsb/dev.tsv", rows=1500, sha256="ab" * 32),
        metric="pearson",
        exits=(ExitFigures(layer=6, metrics=measured),),
        operating_points=(OperatingPoint(rule=rule, metrics=measured, mean_exit_layer=4.5),),
    )
    write_card(tmp_path, Traits((6,), ("score",), "regression"), calibration)
    card = (tmp_path / "README.md").read_text()
    assert "metrics: [pearson, spearman]" in card
    assert "A model that gives a text, or two, a number" in card
    assert "| exit layer | Pearson x 100 | Spearman x 100 |" in card
    assert "| exit rule | Pearson x 100 | Spearman x 100 | mean exit layer |" in card
    assert "| patience 1 tolerance 0.2 | 87.12 | 86.80 | 4.50 |" in card


def test_rules_are_named_by_what_they_ask_for() -> None:
    rules = {
        "entropy < 0.015 reduce max": EntropyRule(threshold=0.015, reduce="max"),
        "confidence >= 0.9987 min_layer 2": ConfidenceRule(threshold=0.9987, min_layer=2),
        "never": NeverRule(),
        "layer 3": LayerRule(layer=3),
    }
    points = [
        OperatingPoint(rule=rule, accuracy=1, agreement=1, mean_exit_layer=1)
        for rule in rules.values()
    ]
    text = render_figures(figures(0.9).model_copy(update={"operating_points": points}))
    for name in rules:
        assert f"\n| {name} | 100.00 |" in text


def test_training_is_told_once_and_anew_with_each_run(tmp_path: Path) -> None:
    write_card(tmp_path, LABELS, figures(0.9))
    write_training(tmp_path, "by one recipe")
    write_training(tmp_path, "by another")
    card = (tmp_path / "README.md").read_text()
    assert "by one recipe" not in card
    assert card.count("## Training") == 1
    assert card.count("by another") == 1
    assert "| 3 | 91.20 |" in card


def test_hand_written_card_keeps_its_training_section_and_gets_figures_at_its_end(
    tmp_path: Path,
) -> None:
    written = "# Mine\n\n## Training\n\nWith care.\n"
    (tmp_path / "README.md").write_text(written)
    write_training(tmp_path, "by a recipe")
    assert (tmp_path / "README.md").read_text() == written
    write_card(tmp_path, LABELS, figures(0.9))
    assert (tmp_path / "README.md").read_text().startswith(f"{written}\n<!-- figures")
