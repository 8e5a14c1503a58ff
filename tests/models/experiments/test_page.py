"""The page: sections that are there, and what is said of those that are not."""

import matplotlib.figure

from models.experiments.page import write_page
from models.experiments.places import Places
from models.experiments.plan import listing, with_starts
from models.experiments.recipes import ROWS, run_of
from models.experiments.run import Run
from models.experiments.section import Context, Section
from tests.models.experiments.conftest import as_if_trained

ONE = Run("one-exit", "sst2", options=("--exits", "3"))
FROZEN = Run("frozen", "sst2", options=("--recipe", "frozen"), start=ONE)
JOINT = Run("joint", "sst2")


def text(context: Context) -> str:
    figure = matplotlib.figure.Figure()
    return f"{context.seconds(JOINT).wall:.0f} s\n\n{context.picture('seen', figure, 'A picture.')}"


SECTIONS = {
    "first": Section("First", (JOINT,), text),
    "second": Section("Second", (FROZEN,), text, bundles=("sst2-minilm",)),
    "third": Section("Third", (JOINT, FROZEN), lambda _context: "in part", partial=True),
}


def test_sections_are_written_or_say_what_is_missing(places: Places) -> None:
    as_if_trained(JOINT, places)
    page = write_page(SECTIONS, SECTIONS, Context(places)).read_text()
    first, second, third = page.split("## ")[1:]
    assert first.startswith("First\n\n2 s\n\n![A picture.](images/p/seen.svg)")
    assert (places.page.parent / "images/p/seen.svg").is_file()
    assert second.startswith(
        "Second\n\n1 of 1 models are not trained yet: `python -m models.experiments second` trains "
        "them in about 4 minutes.\nThe model `sst2-minilm` is not there: "
        "`make zoo MODEL=sst2-minilm` makes it."
    )
    assert third.startswith("Third\n\nin part\n\n1 of 2 models are not trained yet")


def test_sections_that_are_not_asked_for_stay_as_they_are(places: Places) -> None:
    as_if_trained(JOINT, places)
    page = write_page(SECTIONS, ["second"], Context(places)).read_text()
    assert "First\n\nNot written yet: `python -m models.experiments first` does it." in page
    places.page.write_text(page.replace("1 of 1 models", "SEVEN models"))
    page = write_page(SECTIONS, ["third"], Context(places)).read_text()
    assert "Second\n\nSEVEN models are not trained yet" in page
    assert "in part" in page


def test_what_is_written_by_hand_stays_first(places: Places) -> None:
    written = write_page(SECTIONS, SECTIONS, Context(places))
    sections = written.read_text().partition("<!-- first -->")[2]
    by_hand = "<!-- claims -->\n\n## Claims\n\nNot shown.\n\n<!-- end of claims -->"
    places.page.write_text(f"{by_hand}\n\n<!-- first -->{sections}")
    page = write_page(SECTIONS, ["second"], Context(places)).read_text()
    assert page.count(by_hand) == 1
    assert page.index("# Reproductions") < page.index(by_hand) < page.index("<!-- first -->")


def test_what_runs_start_from_is_listed_and_trained_once(places: Places) -> None:
    other = Run("other", "sst2", start=ONE)
    assert with_starts([FROZEN, other, JOINT]) == [ONE, FROZEN, other, JOINT]
    as_if_trained(ONE, places)
    assert listing({"second": SECTIONS["second"]}, Context(places)) == [("second", 2, 1, 2)]


def test_recipes_that_differ_in_the_rule_alone_share_a_model() -> None:
    runs = [run_of(row, 1, "sst2") for row in ROWS]
    assert len(set(runs)) == len(ROWS) - 1
    assert len({str(run) for run in runs}) == len(set(runs))
