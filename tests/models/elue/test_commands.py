"""`offramp elue` from predictions and reports to figures."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from models.checkpoints import load
from models.quality.costs import MFLOPS, MFLOPS_LINEAR, flops_by_exit, num_parameters
from models.quality.source import TorchSource
from serve.tokenization.tokenizer import Text
from tests.models.conftest import offramp, refusal
from tests.support.originals.pabee import Pabee
from tests.support.tiny import write_tiny_model

Write = Callable[..., Path]
TEXTS = [" ".join(f"w{(7 * i + k) % 50}" for k in range(1 + 3 * i % 11)) for i in range(30)]
HEADER = "index\tpred\tmodules"


@pytest.mark.parametrize("make", [write_tiny_model, lambda folder: Pabee().save(folder)])
def test_what_a_prediction_ran_costs_what_its_exit_costs(
    make: Callable[[Path], Path], write_data: Write, tmp_path: Path
) -> None:
    folder, data = make(tmp_path / "model"), write_data("texts.txt", TEXTS)
    exit_ = '{"rule": "entropy", "threshold": 0.9, "min_layer": 2}'
    for format_ in ("elue", "jsonl"):
        options = {"data": data, "out": tmp_path / format_, "format": format_, "exit": exit_}
        assert offramp("predict", folder, **options).exit_code == 0
    with (tmp_path / "elue").open("a") as file:
        file.write("\n")  # as other programs end a file
    out = tmp_path / "costs.tsv"
    result = offramp("elue", "flops", folder, tmp_path / "elue", out=out)
    assert result.exit_code == 0, result.output
    table = np.loadtxt(out, skiprows=1)
    loaded = load(folder)
    source = TorchSource(loaded.model, loaded.tokenizer, loaded.max_tokens)
    lengths = np.array([len(each.input_ids) for each in source.read(list(map(Text, TEXTS)))])
    costs = flops_by_exit(loaded.model, lengths)
    said = [json.loads(line) for line in (tmp_path / "jsonl").read_text().splitlines()]
    for place, each in enumerate(said):
        last = loaded.model.exits.index(each["exit_layer"])
        for column, unit in enumerate((MFLOPS, MFLOPS_LINEAR), start=1):
            run, asked = costs[unit].run[last, place], costs[unit].asked[1 : last + 1, place].sum()
            assert table[place, column] == pytest.approx(run + asked, abs=6e-4)
        assert each["mflops"] == pytest.approx(table[place, 1], abs=2e-3)
    mean = re.search(r"as ELUE counts: mean ([\d.]+)", result.output)
    assert mean
    assert float(mean[1]) == pytest.approx(table[:, 1].mean(), abs=1e-3)
    assert f"parameters: {num_parameters(loaded.model) / 1e6:.3f} M" in result.output


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ("(3),emb; (3,32),layer_9; (32),exit_9", "no module layer_9"),
        ("(3),emb; (3,64),layer_1; (32),exit_1", "layer_1 takes no input of shape (3, 64)"),
        ("(3),emb; (4,32),layer_1; (32),exit_1", "layer_1 takes no input of shape (4, 32)"),
        ("(3),emb; (3,32),layer_2; (32),exit_2", "every layer up to the exit"),
        ("(3),emb; (3,32),layer_1", "every layer up to the exit"),
        ("(3),emb; (3,32),layer_1; (32),exit_2", "every layer up to the exit"),
        ("(3),emb; (3,32),layer_1; (32),exit_1; (32),exit_2", "every layer up to the exit"),
        ("(3,32),layer_1; (32),exit_1", "from emb on"),
        ("(3),emb; (3,32),layer_1; (3,32),layer_1; (32),exit_1", "once each"),
        ("emb, layer_1", "no list of modules"),
        ("(0),emb; (0,32),layer_1; (32),exit_1", "no list of modules"),
        ("(99999999),emb; (99999999,32),layer_1; (32),exit_1", "no list of modules"),
        ("", "no list of modules"),
    ],
)
def test_modules_that_are_not_the_models_are_refused(
    modules: str, message: str, write_data: Write, model_folder: Path
) -> None:
    file = write_data(
        "test.tsv", [HEADER, "0\t1\t(3),emb; (3,32),layer_1; (32),exit_1", f"1\t1\t{modules}"]
    )
    found = refusal(offramp("elue", "flops", model_folder, file))
    assert f"{file} line 3: " in found
    assert message in found


def test_other_files_and_bundles_are_no_test_file_and_no_model(
    bundle_folder: Path, write_data: Write, model_folder: Path
) -> None:
    file = write_data("test.tsv", ["index\tprediction", "0\t1"])
    assert "expected the header index, pred, modules" in refusal(
        offramp("elue", "flops", model_folder, file)
    )
    program = write_data("model.py", ["module_list = exit()"])
    for model, message in ((bundle_folder, "is a bundle"), (program, "nothing is run here")):
        assert message in refusal(offramp("elue", "flops", model, file))


def report(
    path: Path, task: str, places: list[tuple[float, float]], kind: str = "static", **more: Any
) -> Path:
    """Write a report with the points of one model; `accuracy` is of a hundred."""
    points = [
        {"costs": {"mflops": f}, "metrics": dict.fromkeys(("accuracy", "accuracy_and_f1"), p / 100)}
        for f, p in places
    ]
    families = {"static": points, kind: points}
    model = {
        "name": path.stem,
        "task": "single_label",
        "data": {"name": f"{task}/dev.tsv", "sha256": "a"},
        "parameters": 22_000_000,
        "rules": {"families": families, "family_to_judge_by": kind},
    }
    path.write_text(json.dumps({"models": [model | more]}))
    return path


LINE = [(100.0, 80.0), (200.0, 90.0)]
ONE = {"costs": {"mflops": 100.0}, "metrics": {"accuracy": 0.8}}


def test_scores_are_averaged_over_seeds_and_tasks(tmp_path: Path) -> None:
    references = [
        report(tmp_path / "sst2-a.json", "SST-2", LINE),
        report(tmp_path / "sst2-b.json", "sst2", [(f, p + 2) for f, p in LINE]),
        report(tmp_path / "mrpc.json", "mrpc", LINE),
    ]
    mine = [
        report(tmp_path / "one.json", "sst2", [(150, 87), (300, 90)], "entropy"),
        report(tmp_path / "two.json", "sst2", [(150, 85)], "entropy"),
        report(tmp_path / "three.json", "mrpc", [(150, 88)], "patience"),
    ]
    flags = [part for path in references for part in ("--reference", path)]
    result = offramp("elue", "score", *mine, *flags)
    assert result.exit_code == 0, result.output
    # One: (+1 - 1) / 2, its second point outside; two: -1; the task's mean -0.5. Three: +3.
    rows = {line.split()[2]: " ".join(line.split()[5:]) for line in result.stdout.splitlines()[1:4]}
    assert rows == {
        "one": "22.0 M 40 M 1 of 2 +0.00",
        "two": "22.0 M 40 M 2 of 2 -1.00",
        "three": "22.0 M 40 M 1 of 1 +3.00",
    }
    assert "one on sst2: 1 of 2 points lie outside" in result.stdout
    assert "overall, mean of 2 tasks: +1.25" in result.stdout
    assert "accuracy_and_f1" in result.stdout


def test_reports_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    reference = report(tmp_path / "ref.json", "sst2", LINE)
    mine = report(tmp_path / "mine.json", "mrpc", LINE, "entropy")

    def message(path: Path, **options: object) -> str:
        return refusal(offramp("elue", "score", path, **{"reference": reference} | options))

    assert "is measured on mrpc, the reference on sst2" in message(mine)
    assert "mine has static, entropy in its report" in message(mine, task="sst2", family="margin")
    (tmp_path / "no.json").write_text("[]")
    assert "no report" in message(tmp_path / "no.json")
    points = [{"costs": {"layers": 1}, "metrics": {"accuracy": 1}}]
    rules = {"families": {"static": points}, "family_to_judge_by": "static"}
    bundle = report(tmp_path / "bundle.json", "sst2", LINE, rules=rules)
    assert "evaluate the bundle again with --model" in message(bundle)


def test_the_picture_has_a_line_for_each_model_and_the_classes(tmp_path: Path) -> None:
    reports = [
        report(tmp_path / "mine.json", "sst2", [(120, 84), (150, 88)], "entropy"),
        report(tmp_path / "other.json", "mrpc", [(120, 84), (150, 88)], "entropy"),
    ]
    out, reference = tmp_path / "elue.svg", report(tmp_path / "ref.json", "sst2", LINE)
    result = offramp("elue", "plot", *reports, "--reference", reference, out=out)
    assert result.exit_code == 0, result.output
    # Letters are shapes, and what they say is a comment beside them.
    words = {"40 M", "55 M", "70 M", "110 M", "sst2", "mrpc", "reference", "mine, entropy"}
    assert words <= {comment.strip() for comment in _comments(out)}


def _comments(path: Path) -> list[str]:
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    root = ElementTree.fromstring(path.read_text(), parser)
    return [node.text or "" for node in root.iter() if node.tag is ElementTree.Comment]


def test_a_submission_is_scored_as_its_model_is(
    model_folder: Path, write_data: Write, tmp_path: Path
) -> None:
    labels = ("negative", "neutral", "positive")
    rows = [f"{labels[i % 3]}\t{text}" for i, text in enumerate(TEXTS)]
    data, folder = write_data("dev.tsv", ["label\ttext", *rows]), model_folder
    report_ = tmp_path / "report.json"
    files = []
    for layer in (1, 3):
        files.append(tmp_path / f"{layer}.tsv")
        exit_ = json.dumps({"rule": "layer", "layer": layer})
        options = {"data": data, "out": files[-1], "format": "elue", "exit": exit_}
        assert offramp("predict", folder, **options).exit_code == 0
    header, *lines = files[0].read_text().splitlines()
    files[0].write_text("\n".join([header, *lines[::-1]]))  # the index says the row
    result = offramp("elue", "report", folder, *files, data=data, out=report_)
    assert result.exit_code == 0, result.output
    evaluated = tmp_path / "evaluated"
    assert offramp("evaluate", folder, data=data, out=evaluated, examples=0).exit_code == 0
    (model,), (whole,) = (
        json.loads(path.read_text())["models"] for path in (report_, evaluated / "report.json")
    )
    assert model["parameters"] == whole["parameters"]
    assert model["data"] == whole["data"]
    static = [
        point
        for point in whole["rules"]["families"]["static"]
        if point["costs"]["layers"] in (1, 3)
    ]
    for found, expected in zip(model["rules"]["families"]["submitted"], static, strict=True):
        assert found["metrics"] == pytest.approx(expected["metrics"])
        assert found["costs"]["mflops"] == pytest.approx(expected["costs"]["mflops"])
    scored = offramp("elue", "score", report_, evaluated, reference=evaluated, family="submitted")
    assert "--family submitted" in refusal(scored)
    scored = offramp("elue", "score", report_, reference=evaluated)
    assert scored.exit_code == 0, scored.output
    assert "1 of 1" in scored.stdout
    picture = tmp_path / "elue.svg"
    assert offramp("elue", "plot", report_, evaluated, out=picture).exit_code == 0


@pytest.mark.parametrize(
    ("index", "said", "message"),
    [("0", "1", "indices 0 to 1"), ("2", "1", "indices 0 to 1"), ("1", "3", "the id of one"),
     ("1", "good", "the id of one"), ("1", "0.5", "the id of one"), ("1", "nan", "the id of one")],
)  # fmt: skip
def test_predictions_that_are_not_of_the_data_are_refused(
    index: str, said: str, message: str, write_data: Write, model_folder: Path, tmp_path: Path
) -> None:
    ran = "(3),emb; (3,32),layer_1; (32),exit_1"
    file = write_data("test.tsv", [HEADER, f"0\t1\t{ran}", f"{index}\t{said}\t{ran}"])
    data = write_data("dev.tsv", ["label\ttext", "neutral\tw1", "neutral\tw2"])
    options = {"data": data, "out": tmp_path / "report.json"}
    found = offramp("elue", "report", model_folder, file, **options)
    assert message in refusal(found)


def test_what_is_read_is_not_replaced(
    model_folder: Path, write_data: Write, tmp_path: Path
) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    file = report(folder / "report.json", "sst2", LINE)
    for read in (file, folder):
        for options in (
            [read],
            [report(tmp_path / "mine.json", "sst2", LINE), "--reference", read],
        ):
            found = refusal(offramp("elue", "plot", *options, out=file))
            assert "is what the command reads" in found
    assert json.loads(file.read_text())
    ran = write_data("test.tsv", [HEADER, "0\t1\t(3),emb; (3,32),layer_1; (32),exit_1"])
    for out in (ran, model_folder / "config.json", model_folder / "new.tsv"):
        found = refusal(offramp("elue", "flops", model_folder, ran, out=out))
        assert "is what the command reads" in found
    assert ran.read_text().startswith(HEADER)


@pytest.mark.parametrize(
    "damage",
    [
        {"rules": {"families": {"static": []}, "family_to_judge_by": "static"}},
        {"rules": {"families": {"entropy": [ONE]}, "family_to_judge_by": "static"}},
        {"rules": {"families": {"static": [ONE, ONE]}, "family_to_judge_by": ["entropy"]}},
        {"rules": {"families": {"static": [ONE | {"costs": {"mflops": float("nan")}}]}}},
        {"rules": {"families": {"static": [ONE | {"costs": {"mflops": 10**400}}]}}},
        {"rules": {"families": {"static": [ONE | {"costs": {"mflops": float("inf")}}]}}},
        {"parameters": "many"},
    ],
    ids=str,
)
def test_a_damaged_report_is_refused_in_a_sentence(damage: dict[str, Any], tmp_path: Path) -> None:
    whole = report(tmp_path / "whole.json", "sst2", LINE)
    damaged = report(tmp_path / "damaged.json", "sst2", LINE, **damage)
    out = tmp_path / "elue.svg"
    assert refusal(offramp("elue", "score", damaged, reference=whole))
    assert refusal(offramp("elue", "plot", damaged, out=out))


@pytest.mark.parametrize("written", ['{"models": [1]}', "[" * 100_000, '{"models": "name"}'])
def test_other_json_is_no_report(written: str, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(written)
    whole = report(tmp_path / "whole.json", "sst2", LINE)
    assert "no report" in refusal(offramp("elue", "score", other, reference=whole))
