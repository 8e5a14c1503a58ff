from dataclasses import replace

import pytest

from loadtest.compare import rounds
from loadtest.compare.contenders import Contender
from loadtest.compare.cores import share_cores
from loadtest.compare.loads import Closed
from loadtest.compare.measure import Fixed, Saturated, Setting
from loadtest.compare.rounds import Clock, Rounds
from loadtest.compare.table import Line, table_text

SATURATED = Saturated("x", 100.0, 5.0, 0.2, 100.0, ("positive",), None)
FIXED = Fixed(5.0, 9.0, 1.0, 0)
FACTS = {
    "rate": 10.0,
    "texts": 1,
    "data": "dev.tsv",
    "server_cores": 1,
    "clients": 16,
    "load_shares_cores": False,
    "machine_load": 0.1,
    "date": "today",
}


def contender(name: str) -> Contender:
    return Contender(name, (), {})


@pytest.fixture
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let measuring take no time."""
    monkeypatch.setattr(
        rounds, "measure_saturated", lambda c, setting: replace(SATURATED, name=c.name)
    )
    monkeypatch.setattr(rounds, "measure_fixed", lambda *_: FIXED)


def play(minutes: float) -> tuple[list[Saturated], list[Fixed | None], list[str]]:
    said: list[str] = []
    setting = Setting([], share_cores(), Closed(1, 0.0, 1.0))
    both = Rounds(setting, Clock(minutes), said.append)
    found = [contender("first"), contender("second")]
    return both.saturate(found), both.fix(found, 10.0), said


@pytest.mark.usefixtures("_measured")
def test_all_are_measured_while_there_is_time() -> None:
    saturated, fixed, _ = play(minutes=60.0)
    assert [s.name for s in saturated] == ["first", "second"]
    assert fixed == [FIXED, FIXED]


@pytest.mark.usefixtures("_measured")
def test_who_comes_too_late_is_named() -> None:
    saturated, fixed, said = play(minutes=1e-12)
    assert [s.name for s in saturated] == ["first"]
    assert fixed == [None, None]
    assert said[1] == "no time for second"


def test_figures_that_were_not_measured_are_dashes() -> None:
    lines = [Line(SATURATED, FIXED, 0.9, 1.0), Line(SATURATED, None, 0.9, 1.0)]
    text = table_text(lines, FACTS)
    assert "| x | 90.00 | - | 100 | 5.00 | 9.00 | 5.00 | 100 |" in text
    assert "| x | 90.00 | - | 100 | - | - | 5.00 | 100 |" in text
