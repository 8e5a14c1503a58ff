"""`offramp evaluate` on tiny bundles and checkpoints of every task and system."""

import json
import re
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args
from unittest.mock import Mock
from xml.etree import ElementTree

import pytest

from models.quality.source import BundleSource
from serve.rules.traits import Task
from tests.models.conftest import offramp, refusal
from tests.models.quality.conftest import MakeData, contents, run
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.originals.pabee import Pabee
from tests.support.tiny import write_tiny_model

Write = Callable[..., Path]
ROWS = 40


def text(place: int) -> str:
    return " ".join(f"w{(7 * place + k) % 50}" for k in range(1 + 3 * place % 11))


def figures_of(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((out / "report.json").read_text())["models"]
    return found


def left_out(model: dict[str, Any]) -> set[str]:
    return {name for name, part in model.items() if isinstance(part, dict) and "left_out" in part}


@pytest.mark.parametrize("task", get_args(Task))
def test_each_task_gets_its_report_and_nothing_is_written_into_the_bundle(
    make_data: MakeData, task: Task, tmp_path: Path
) -> None:
    bundle = write_task_bundle(tmp_path, Kind(task))
    before = contents(bundle)
    data = make_data(task, ROWS)
    options = {"data": data, "out": tmp_path / "out", "text": "w1 w2 w3", "reference": bundle}
    result = offramp("evaluate", bundle, **options)
    assert result.exit_code == 0, result.output
    assert str(tmp_path / "out" / "report.html") in result.stdout
    assert contents(bundle) == before
    (model,) = figures_of(tmp_path / "out")
    assert (model["task"], model["data"]["rows"], model["precision"]) == (task, ROWS, "fp32")
    without = {"overthinking", "calibration"} if task == "regression" else set()
    assert left_out(model) == without
    assert [row["why"] for row in model["examples"]][-1] == "given"
    never = model["rules"]["families"]["static"][-1]
    assert never["costs"]["ms"] > 0
    assert sum(never["exit_shares"]) == 1
    assert "mflops" not in never["costs"]
    assert "PyTorch's counter" in model["not_known"]["mflops"]
    full, *others = model["reference"]["rules"]
    assert (full["rule"], full["scores"]) == ("full depth", pytest.approx(0, abs=1e-6))
    assert full["disagreement"] == (None if task == "regression" else 0)
    said = f"on {ROWS} texts full depth gives another answer"
    assert (said in result.stdout) == (task != "regression")
    assert len(others) >= len(model["rules"]["families"].get("profiles", []))


def test_the_page_opens_anywhere_and_its_pictures_are_whole(
    bundle_folder: Path, make_data: MakeData, tmp_path: Path
) -> None:
    data = make_data(num_texts=ROWS)
    out = tmp_path / "out"
    assert offramp("evaluate", bundle_folder, data=data, out=out, examples=1).exit_code == 0
    page, words = (out / "report.html").read_text(), (out / "report.md").read_text()
    assert "http" not in page
    assert not re.search(r"<script|<link|@import|url\(", page)
    inside = [b64decode(found) for found in re.findall(r"base64,([^\"]+)", page)]
    beside = re.findall(r"!\[.*?\]\((.*?)\)", words)
    assert [(out / name).read_bytes() for name in beside] == inside
    assert sorted([*beside, "report.html", "report.json", "report.md"]) == sorted(
        path.name for path in out.iterdir()
    )
    for picture in inside:
        assert ElementTree.fromstring(picture).tag.endswith("svg")


def test_a_calibrated_bundle_is_measured_as_it_is_served(write_data: Write, tmp_path: Path) -> None:
    bundle = write_task_bundle(tmp_path, Kind("single_label"), alike=True)
    texts = [f"{label}\t{text(i)} w{i % 50}" for i, label in enumerate(("neutral",) * 400)]
    data = write_data("dev.tsv", ["label\ttext", *texts])
    (ladder,), _ = run(bundle, data)
    assert set(ladder.temperatures) != {1.0}
    result = offramp("evaluate", bundle, data=data, out=tmp_path / "out", examples=0)
    assert result.exit_code == 0, result.output
    (model,) = figures_of(tmp_path / "out")
    assert model["temperatures"] == list(ladder.temperatures)
    families = model["rules"]["families"]
    assert [rung["certificates"] for rung in families["ladder"]] == [
        [c.model_dump() for c in rung.certificates] for rung in ladder.rungs
    ]
    profiles = {found["name"]: found for found in families["profiles"]}
    assert profiles.keys() == {"exact", "balanced", "fast"}
    rungs = [rung["rule"] for rung in families["ladder"]]
    assert profiles["exact"]["rule"] == rungs[0] == {"rule": "never"}
    assert rungs.index(profiles["fast"]["rule"]) > 0
    bounds = {c["loss"]: c["epsilon"] for c in profiles["fast"]["certificates"]}
    assert bounds["disagreement"] <= 0.03
    words = (tmp_path / "out" / "report.md").read_text()
    assert "certified %: other answer than at full depth" in words
    assert f"delta 0.05 and n {ladder.num_certifying}" in words
    assert "temperatures are those of the certified rules" in words
    shown = [name for name in model["exit_shares"] if name.startswith("rung: ")]
    assert len(shown) > 1
    assert model["exit_shares"][shown[-1]][0] > model["exit_shares"][shown[0]][0]


def test_several_models_and_precisions_lie_on_the_same_axes(
    bundle_folder: Path, model_folder: Path, make_data: MakeData, tmp_path: Path
) -> None:
    data = make_data(num_texts=ROWS)
    out, before = tmp_path / "out", contents(model_folder)
    result = offramp(
        "evaluate",
        bundle_folder,
        model_folder,
        data=data,
        out=out,
        precision="fp32,int8",
        examples=0,
        model=model_folder,
    )
    assert result.exit_code == 0, result.output
    assert contents(model_folder) == before
    fp32, int8, checkpoint = figures_of(out)
    names = [model["name"] for model in (fp32, int8, checkpoint)]
    assert names == ["tiny fp32", "tiny int8", "model"]
    assert (out / "models.svg").is_file()
    # The bundle is of this very model: the same answers, the same operations, but also times.
    static = [m["rules"]["families"]["static"] for m in (fp32, checkpoint)]
    for one, other in zip(*static, strict=True):
        assert one["value"] == other["value"]
        assert one["costs"]["mflops"] == pytest.approx(other["costs"]["mflops"])
        assert ("ms" in one["costs"], "ms" in other["costs"]) == (True, False)
    assert fp32["parameters"] == checkpoint["parameters"]
    assert [p["name"] for p in checkpoint["rules"]["families"]["profiles"]] == ["default", "quick"]
    assert left_out(fp32) == {"examples"}


def test_a_checkpoint_of_a_papers_system_is_judged_by_its_own_rule(
    write_data: Write, tmp_path: Path
) -> None:
    folder = Pabee().save(tmp_path / "checkpoint")
    before = contents(folder)
    lines = (f"{place % 3}\t{text(place)}" for place in range(ROWS))
    data = write_data("dev.tsv", ["label\ttext", *lines])
    result = offramp("evaluate", folder, data=data, out=tmp_path / "out", examples=0)
    assert result.exit_code == 0, result.output
    assert contents(folder) == before
    (model,) = figures_of(tmp_path / "out")
    assert model["origin"] == "PABEE checkpoint"
    assert model["rules"]["family_to_judge_by"] == "patience"
    assert model["rules"]["families"]["static"][0]["costs"]["mflops"] > 0


def test_an_interrupted_run_leaves_the_old_report_and_nothing_else(
    bundle_folder: Path, make_data: MakeData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_data(num_texts=ROWS)
    out = tmp_path / "reports" / "tiny"
    assert offramp("evaluate", bundle_folder, data=data, out=out, examples=0).exit_code == 0
    before = contents(out.parent)

    interrupt = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("models.quality.report.evaluate.markdown_page", interrupt)
    assert offramp("evaluate", bundle_folder, data=data, out=out, examples=0).exit_code != 0
    assert contents(out.parent) == before
    assert [path.name for path in out.parent.iterdir()] == ["tiny"]


def test_what_cannot_be_measured_is_refused_before_anything_is_run(
    bundle_folder: Path,
    model_folder: Path,
    make_data: MakeData,
    write_data: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BundleSource, "read", lambda *_: pytest.fail("a model was run"))
    monkeypatch.chdir(tmp_path)
    data = make_data(num_texts=ROWS)
    wrong = write_data("wrong.tsv", ["label\ttext", "joyful\tw1"])
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "one.tex").touch()

    def message(*what: object, **options: object) -> str:
        return refusal(offramp("evaluate", *what, **{"data": data, **options}))

    assert "no fp16 variant; it has fp32, int8" in message(bundle_folder, precision="fp16")
    assert "is for bundles; checkpoints run in fp32" in message(model_folder, precision="int8")
    assert "unknown label 'joyful'" in message(bundle_folder, data=wrong)
    assert "thesis exists and is no report" in message(bundle_folder, out="thesis")
    inside = message(model_folder, out=model_folder / "report")
    assert "lies in" in inside
    assert "config.json is missing" in message(tmp_path / "data")
    other = write_tiny_model(tmp_path / "other", "albert")
    task_bundle = write_task_bundle(tmp_path, Kind("single_label"))
    assert "no bundle that is measured has its layers" in message(task_bundle, model=other)
    assert not (tmp_path / "evaluation").exists()
