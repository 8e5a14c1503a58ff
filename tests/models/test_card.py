"""The model card: figures are rewritten, hand-written sections stay."""

from pathlib import Path

from models.card import write_card
from serve.calibration import Data, ExitFigures, OperatingPoint, VariantCalibration
from serve.policy import Policy
from serve.rules import EntropyRule, NeverRule, PatienceRule

BALANCED = EntropyRule(threshold=0.3)
POLICY = Policy(default="balanced", profiles={"exact": NeverRule(), "balanced": BALANCED})


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
    write_card(tmp_path, figures(0.911), POLICY)
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\n")
    assert "`sst2/dev.tsv` (872 rows" in card
    assert "| 3 | 91.20 |" in card
    assert "| entropy < 0.30 **balanced** | 91.10 | 98.00 | 2.50 |" in card
    assert "| patience 2 | 90.00 | 97.00 | 3.12 |" in card


def test_new_figures_replace_the_old_and_keep_what_was_written_by_hand(tmp_path: Path) -> None:
    write_card(tmp_path, figures(0.911), POLICY)
    path = tmp_path / "README.md"
    path.write_text(path.read_text() + "\n## Limits\n\nShort English reviews only.\n")
    write_card(tmp_path, figures(0.5), POLICY)
    card = path.read_text()
    assert "50.00" in card
    assert "91.10" not in card
    assert card.count("| exit layer | accuracy % |") == 1
    assert card.endswith("\n## Limits\n\nShort English reviews only.\n")


def test_writing_the_same_figures_again_changes_nothing(tmp_path: Path) -> None:
    write_card(tmp_path, figures(0.9), POLICY)
    once = (tmp_path / "README.md").read_text()
    write_card(tmp_path, figures(0.9), POLICY)
    assert (tmp_path / "README.md").read_text() == once


def test_card_without_markers_gets_the_figures_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Mine\n")
    write_card(tmp_path, figures(0.9), POLICY)
    assert (tmp_path / "README.md").read_text().startswith("# Mine\n\n<!-- figures")
