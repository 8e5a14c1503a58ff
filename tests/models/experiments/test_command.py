"""`python -m models.experiments`."""

from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from models.errors import TrainingFailed
from models.experiments import __main__ as command
from models.experiments.places import Places
from models.experiments.run import Run
from models.experiments.section import Section
from models.experiments.training import Stopped
from tests.models.experiments.conftest import as_if_trained

GOOD, WRONG = Run("good", "sst2"), Run("wrong", "sst2")
SECTIONS = {
    "one-a": Section("A", (WRONG, GOOD), lambda _context: "all of A"),
    "one-b": Section("B", (GOOD,), lambda _context: "all of B"),
    "two": Section("C", (), lambda _context: "all of C"),
}


@pytest.fixture
def called(places: Places, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Return what calls the command, and returns its exit status and what it prints."""

    def train(run: Run, _places: Places, _say: object) -> Path:
        if run == WRONG:
            raise TrainingFailed("wrong cannot be trained")
        as_if_trained(run, places)
        return places.runs

    monkeypatch.setattr(command, "SECTIONS", SECTIONS)
    monkeypatch.setattr(command, "ensure", train)
    monkeypatch.setattr(command, "Places", lambda **given: places)
    app = typer.Typer()
    app.command()(command.main)

    def call(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, list(words))
        return result.exit_code, result.output

    return call


def test_one_failed_run_keeps_no_other_from_being_trained(
    called: Callable[..., tuple[int, str]], places: Places
) -> None:
    code, said = called("one")
    assert code == 1
    assert "error: wrong cannot be trained" in said
    page = places.page.read_text()
    assert "1 of 2 models are not trained yet" in page
    assert "all of B" in page
    assert "all of C" not in page


def test_finished_only_trains_nothing(
    called: Callable[..., tuple[int, str]], places: Places
) -> None:
    assert called("--finished-only")[0] == 0
    page = places.page.read_text()
    assert "1 of 1 models are not trained yet" in page
    assert "all of C" in page


def test_the_list_says_what_is_left(called: Callable[..., tuple[int, str]], places: Places) -> None:
    as_if_trained(GOOD, places)
    code, said = called("--list", "one-a")
    assert code == 0
    assert said.splitlines()[2:] == ["| one-a | 2 | 1 | 2 |"]


def test_a_section_that_is_not_there_is_refused_with_those_that_are(
    called: Callable[..., tuple[int, str]],
) -> None:
    code, said = called("thre")
    assert code == 2
    assert "no section thre" in said


def test_a_stop_ends_everything(
    called: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch, places: Places
) -> None:
    def stop(run: Run, *_: object) -> Path:
        raise Stopped(f"{run}: stopped; the same command goes on")

    monkeypatch.setattr(command, "ensure", stop)
    code, said = called("one-b")
    assert code == 130
    assert "goes on" in said
    assert not places.page.exists()
