"""`python -m models.experiments`: what is trained, and the page of what is there."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from models.errors import TrainingFailed
from models.experiments import __main__ as command
from models.experiments.context import Context
from models.experiments.page import Section, with_starts, write_page
from models.experiments.run import Run
from models.experiments.sections import SECTIONS as ALL
from models.experiments.training import Stopped
from tests.models.experiments.conftest import as_if_trained

GOOD, WRONG = Run("good", "sst2"), Run("wrong", "sst2")
START = Run("one-exit", "sst2", options=("--exits", "3"))
FROZEN = Run("frozen", "sst2", options=("--recipe", "frozen"), start=START)


def text(_context: Context) -> Iterator[str]:
    yield "| a table |"
    yield "A sentence."


SECTIONS = {
    "one-a": Section("A", "About A.", text, (WRONG, GOOD)),
    "one-b": Section("B", "About B.", text, (GOOD,)),
    "two": Section("C", "About C.", text),
    "zoo": Section("D", "About D.", text, models=("sst2-mpnet", "mrpc-mpnet"), exported=True),
}
Call = Callable[..., tuple[int, str]]


@pytest.fixture
def called(places: Context, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Return what calls the command, and returns its exit status and what it prints."""

    def train(run: Run, _context: Context, _say: object) -> Path:
        if run == WRONG:
            raise TrainingFailed("wrong cannot be trained")
        as_if_trained(run, places)
        return places.runs

    monkeypatch.setattr(command, "SECTIONS", SECTIONS)
    monkeypatch.setattr(command, "ensure", train)
    monkeypatch.setattr(command, "Context", lambda **given: places)
    app = typer.Typer()
    app.command()(command.main)

    def call(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, list(words))
        return result.exit_code, result.output

    return call


def test_one_failed_run_keeps_no_other_from_being_trained(called: Call, places: Context) -> None:
    code, said = called("one")
    assert code == 1
    assert "error: wrong cannot be trained" in said
    page = places.page.read_text()
    assert "## A\n\n1 of 2 models are not trained yet" in page
    assert "## B\n\nAbout B.\n\n| a table |\n\nA sentence." in page
    assert "About C." not in page
    assert called("--list", "one-a")[1].splitlines()[2:] == ["| one-a | 2 | 1 | 2 |"]


def test_finished_only_trains_nothing_and_says_what_is_missing(
    called: Call, places: Context
) -> None:
    for name in ("zoo/sst2-mpnet/config.json", "bundles/sst2-mpnet/manifest.json"):
        path = places.runs.parent / name
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    assert called("--finished-only")[0] == 0
    page = places.page.read_text()
    assert "1 of 1 models are not trained yet: `python -m models.experiments one-b`" in page
    assert "About C." in page
    assert page.count("About D.") == 1
    assert "Not there yet: `make zoo MODEL=mrpc-mpnet`." in page
    path.unlink()
    called("--finished-only", "zoo")
    page = places.page.read_text()
    assert "About D." not in page
    assert "`make bundle MODEL=sst2-mpnet`, `make zoo MODEL=mrpc-mpnet`" in page


def test_other_sections_and_what_is_written_by_hand_stay(called: Call, places: Context) -> None:
    called("--finished-only", "one")
    page = places.page.read_text()
    assert "## C\n\nNot written yet: `python -m models.experiments two` does it." in page
    by_hand = "<!-- claims -->\n\n## Claims\n\nNot shown.\n\n<!-- end of claims -->"
    head, _, sections = page.replace("1 of 1", "SEVEN").partition("<!-- one-a -->")
    places.page.write_text(f"{by_hand}\n\n<!-- one-a -->{sections}")
    page = write_page(SECTIONS, ["two"], places).read_text()
    assert page.startswith(f"{head}{by_hand}\n\n<!-- one-a -->")
    assert "SEVEN models are not trained yet" in page
    assert "About C." in page


def test_a_section_that_is_not_there_is_refused_with_those_that_are(called: Call) -> None:
    code, said = called("thre")
    assert code == 2
    assert "no section thre" in said


def test_a_stop_ends_everything(
    called: Call, monkeypatch: pytest.MonkeyPatch, places: Context
) -> None:
    def stop(run: Run, *_: object) -> Path:
        raise Stopped(f"{run}: stopped; the same command goes on")

    monkeypatch.setattr(command, "ensure", stop)
    code, said = called("one-b")
    assert code == 130
    assert "goes on" in said
    assert not places.page.exists()


def test_what_runs_start_from_is_trained_once_and_first() -> None:
    other = Run("other", "sst2", start=START)
    assert with_starts([FROZEN, other, GOOD]) == [START, FROZEN, other, GOOD]


def test_runs_of_all_sections_have_folders_of_their_own() -> None:
    runs = {run for section in ALL.values() for run in with_starts(section.runs)}
    assert len({str(run) for run in runs}) == len(runs)
