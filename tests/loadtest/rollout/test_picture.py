from pathlib import Path
from typing import Any

from loadtest.rollout.picture import write_picture


def shown(passed_s: float, state: str, answers: int) -> dict[str, Any]:
    disagreement = {"low": 0.0, "high": 0.5} | ({"rate": 0.1} if answers else {})
    arm = {"answers": answers, "disagreement": disagreement}
    return {
        "passed_s": passed_s,
        "state": state,
        "percent": 5 if state == "running" else 0,
        "arms": {"live": arm, "candidate": arm},
    }


def test_picture_ends_soon_after_the_rollout(tmp_path: Path) -> None:
    seen = [shown(10.0 + second, "running", 3 * second) for second in range(30)]
    seen += [shown(40.0 + second, "failed", 90) for second in range(200)]
    picture = write_picture(seen, 0.04, tmp_path / "new" / "bad.svg").read_text()
    assert picture.startswith("<?xml")
    early = write_picture(seen[:60], 0.04, tmp_path / "early.svg").read_text()
    assert picture == early  # what comes later is not in it
