import json
import shutil
from pathlib import Path

import pytest

from loadtest.bench.promised_times import Kept, main
from tests.serve.support.ladders import NEVER, certify


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    file = tmp_path / "texts.tsv"
    file.write_text("label\ttext\n" + "".join(f"0\tw{i} w{i + 1}\n" for i in range(8)))
    return file


def test_every_target_that_can_be_had_is_compared_in_every_precision(
    bundle_folder: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(bundle_folder, tmp_path / "tiny"))
    certify(folder, "fp32", "int8")
    figures = tmp_path / "figures.json"
    arguments = [str(folder), "--data", str(texts), "--threads", "1", "--json", str(figures)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "int8: promised -> taken" in printed
    assert "furthest from a promise" in printed
    document = json.loads(figures.read_text())
    assert set(document) == {"fp32", "int8"}
    for rows in document.values():
        assert rows[0]["rule"] == NEVER
        assert rows[0]["layers"] == [4, 4]
        assert rows[0]["speedup"] == [1, 1]
        assert all(promised > 0 < taken for row in rows for promised, taken in (row["ms"],))
        targets = [row["target"] for row in rows]
        assert {"max_disagreement": 0.01} in targets
        assert {"speedup": 3} not in targets, "no rung is so fast"


def test_bundle_without_certificates_is_refused(
    bundle_folder: Path, texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(bundle_folder), "--data", str(texts)]) == 1
    assert "failed: No rule of tiny is certified" in capsys.readouterr().out


def test_deviation_is_of_time_or_speedup_whichever_is_further_off() -> None:
    kept = Kept({"speedup": 2}, NEVER, (3, 3), ms=(1.0, 1.1), speedup=(2.0, 1.6))
    assert kept.deviation == pytest.approx(0.2)
