from pathlib import Path

import pytest

from loadtest.bench.errors import BenchFailed
from loadtest.bench.gpu.child import absent, run_child


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "measures.py").write_text(
        "import sys, time\n"
        "print('a line of a library')\n"
        "print('{\"ms\": 1}', flush=True)\n"
        "if sys.argv[1:] == ['hang']: time.sleep(600)\n"
        "if sys.argv[1:] == ['crash']: sys.exit('no such kernel')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "measures"


@pytest.mark.parametrize(
    ("how", "seconds", "why"), [("hang", 2.0, "no time left"), ("crash", 60.0, "no such kernel")]
)
def test_what_came_before_a_crash_or_the_end_of_the_time_is_kept(
    module: str, how: str, seconds: float, why: str
) -> None:
    lines = run_child(module, [how], seconds)
    assert next(lines) == {"ms": 1}
    with pytest.raises(BenchFailed, match=why):
        next(lines)


def test_absent_packages_are_named() -> None:
    assert absent("numpy", "no_such_package", "neither") == "no_such_package, neither"
