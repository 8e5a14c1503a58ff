from pathlib import Path

import numpy as np
import pytest

from loadtest.bench.evidence import audits_until, chance_of_alarm, table
from serve.audits.evidence import log10_evidence, log10_restarted

ROOT = Path(__file__).parents[3]


def test_table_of_the_page_is_what_the_command_prints() -> None:
    page = (ROOT / "docs/operations.md").read_text("utf-8")
    assert "\n".join(table()) in page, "put there: python -m loadtest.bench.evidence"


@pytest.mark.parametrize("delta", [0.05, 0.01])
def test_a_kept_promise_is_seldom_called_broken(delta: float) -> None:
    assert 0 < list(chance_of_alarm(0.01, delta, 0.01, most=5_000))[-1] < delta


def test_alarms_come_as_often_as_in_simulated_streams() -> None:
    half, nearly_all = audits_until(0.02, 0.01, 0.12)
    differs = np.random.default_rng(44).random((4_000, nearly_all)) < 0.12
    evidence = log10_evidence(np.cumsum(differs, axis=1), np.arange(1, nearly_all + 1), 0.02)
    evidence += log10_restarted((0, 0), (), 0.02)
    alarmed = np.maximum.accumulate(evidence >= 2, axis=1).mean(axis=0)
    assert alarmed[half - 1] == pytest.approx(0.5, abs=0.03)
    assert alarmed[-1] == pytest.approx(0.95, abs=0.02)
