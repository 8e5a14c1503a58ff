import matplotlib as mpl
import pytest
from matplotlib.font_manager import findfont

from models.data.notes import DataNote
from models.quality import fonts
from models.quality.fonts import fonts_for
from models.quality.style import as_svg, new_figure


def draw(words: str) -> None:
    figure = new_figure()
    figure.text(0, 0, words)
    as_svg(figure)  # what is missing would be a warning, and so an error


def test_letters_are_taken_from_any_font_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "findSystemFonts", lambda: [findfont("DejaVu Sans")])
    with mpl.rc_context({"font.family": ["cmr10"]}), fonts_for("ж b"):
        assert mpl.rcParams["font.family"] == ["cmr10", "DejaVu Sans"]
        draw("ж b")


def test_letters_that_no_font_has_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "findSystemFonts", lambda: ["/nowhere.ttf"])
    with pytest.warns(DataNote, match="no font of this machine has 日本"), fonts_for("a日本"):
        draw("a日本")
