"""The model card: figures are rewritten, hand-written sections stay."""

from pathlib import Path

from models.quality.card import write_card, write_training
from serve.bundle.calibration import ExitFigures, VariantCalibration
from serve.policy.ladder import Data
from serve.rules.traits import Traits
from tests.support.traits import two_labels

LABELS = two_labels((1, 3))


def figures(accuracy: float) -> VariantCalibration:
    return VariantCalibration(
        data=Data(name="sst2/dev.tsv", rows=872, sha256="ab" * 32),
        exits=(ExitFigures(layer=1, accuracy=0.8), ExitFigures(layer=3, accuracy=accuracy)),
    )


def test_new_figures_replace_the_old_and_keep_what_was_written_by_hand(tmp_path: Path) -> None:
    write_card(tmp_path, LABELS, figures(0.911))
    path = tmp_path / "README.md"
    card = path.read_text()
    assert card.startswith("---\n")
    assert "`sst2/dev.tsv` (872 rows" in card
    assert "| 3 | 91.10 |" in card
    path.write_text(card + "\n## Limits\n\nShort English reviews only.\n")
    write_card(tmp_path, LABELS, figures(0.5))
    card = path.read_text()
    assert "| 3 | 50.00 |" in card
    assert "91.10" not in card
    assert card.count("| exit layer | accuracy % |") == 1
    assert card.endswith("\n## Limits\n\nShort English reviews only.\n")
    write_card(tmp_path, LABELS, figures(0.5))
    assert path.read_text() == card, "the same figures change nothing"


def test_card_of_a_regression_shows_correlations(tmp_path: Path) -> None:
    measured = {"pearson": 0.8712, "spearman": 0.868}
    calibration = VariantCalibration(
        data=Data(name="stsb/dev.tsv", rows=1500, sha256="ab" * 32),
        metric="pearson",
        exits=(ExitFigures(layer=6, metrics=measured),),
    )
    write_card(tmp_path, Traits((6,), ("score",), "regression"), calibration)
    card = (tmp_path / "README.md").read_text()
    assert "metrics: [pearson, spearman]" in card
    assert "A model that gives a text, or two, a number" in card
    assert "| exit layer | Pearson x 100 | Spearman x 100 |" in card
    assert "| 6 | 87.12 | 86.80 |" in card


def test_training_is_told_once_and_anew_with_each_run(tmp_path: Path) -> None:
    write_card(tmp_path, LABELS, figures(0.9))
    write_training(tmp_path, "by one recipe")
    write_training(tmp_path, "by another")
    card = (tmp_path / "README.md").read_text()
    assert "by one recipe" not in card
    assert card.count("## Training") == 1
    assert card.count("by another") == 1
    assert "| 3 | 90.00 |" in card


def test_hand_written_card_keeps_its_training_section_and_gets_figures_at_its_end(
    tmp_path: Path,
) -> None:
    written = "# Mine\n\n## Training\n\nWith care.\n"
    (tmp_path / "README.md").write_text(written)
    write_training(tmp_path, "by a recipe")
    assert (tmp_path / "README.md").read_text() == written
    write_card(tmp_path, LABELS, figures(0.9))
    assert (tmp_path / "README.md").read_text().startswith(f"{written}\n<!-- figures")
