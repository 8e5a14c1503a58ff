"""How often promises break over draws of texts."""

from pathlib import Path

import numpy as np
import pytest

from loadtest.holds import main
from tests.serve.support.tables import add_table
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.tiny import WORDS


def test_every_draw_is_compared_with_its_bounds_with_a_table_and_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = add_table(write_task_bundle(tmp_path, Kind("single_label"), alike=True))
    draw, data = np.random.default_rng(0), tmp_path / "texts.txt"
    data.write_text("".join(f"{' '.join(draw.choice(WORDS, 6))}\n" for _ in range(1200)))
    main([str(bundle), "--data", str(data), "--draws", "2"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    found = [dict(zip(head, row, strict=True)) for row in rows]
    assert [row["rules"] for row in found] == ["exits"] * 5 + ["what is before, and exits"] * 5
    loosest = [row for row in found if row["epsilon"] == "5 %"]
    assert all(1 <= float(row["layers"]) < 4 for row in loosest)
    assert all(0 < float(row["other answers %"]) <= 5 for row in loosest)
