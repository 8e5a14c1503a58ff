from dataclasses import replace

import pytest

from loadtest.compare import rounds
from loadtest.compare.contenders import Contender
from loadtest.compare.cores import share_cores
from loadtest.compare.loads import ClosedLoop
from loadtest.compare.measure import FixedRate, Saturated, Setting
from loadtest.compare.rounds import Rounds
from loadtest.compare.table import Line, table_text

SATURATED = Saturated("x", 100.0, 5.0, 0.2, 100.0, ("positive",), None)
FIXED = FixedRate(5.0, 9.0, 1.0, 0)
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


@pytest.mark.parametrize(
    ("minutes", "names", "fixed"),
    [(60.0, ["first", "second"], [FIXED, FIXED]), (1e-12, ["first"], [None, None])],
)
def test_contenders_without_time_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, minutes: float, names: list[str], fixed: list[object]
) -> None:
    monkeypatch.setattr(rounds, "measure_saturated", lambda c, _: replace(SATURATED, name=c.name))
    monkeypatch.setattr(rounds, "measure_fixed", lambda *_: FIXED)
    said: list[str] = []
    both = Rounds(Setting([], share_cores(), ClosedLoop(1, 0.0, 1.0)), minutes, said.append)
    contenders = [Contender(name, (), {}) for name in ("first", "second")]
    assert [s.name for s in both.saturate(contenders)] == names
    assert both.fix(contenders, 10.0) == fixed
    assert ("no time for second" in said) == (len(names) == 1)


def test_figures_that_were_not_measured_are_dashes() -> None:
    lines = [Line(SATURATED, FIXED, 0.9, 1.0), Line(SATURATED, None, 0.9, 1.0)]
    text = table_text(lines, FACTS)
    assert "| x | 90.00 | - | 100 | 5.00 | 9.00 | 5.00 | 100 |" in text
    assert "| x | 90.00 | - | 100 | - | - | 5.00 | 100 |" in text
