"""`offramp predict` on tiny bundles, model folders and checkpoints."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any, get_args

import numpy as np
import pytest

from models.checkpoints import load
from models.prediction import predict as module
from models.prediction.predictor import Prediction, Predictor
from models.quality.costs import MFLOPS, flops_by_exit
from models.quality.recorded import Recorded, recorded
from models.quality.source import TorchSource
from serve.rules import EntropyRule, ExitRule, LayerRule, PatienceRule
from serve.rules.table import table_confidence
from serve.rules.traits import Task
from serve.tokenization.tokenizer import Text
from tests.models.conftest import offramp, refusal
from tests.models.quality.conftest import recording_of
from tests.serve.support.tables import BUCKETS, VOCABULARY, add_table
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.originals.fastbert import FastBert
from tests.support.originals.pabee import Pabee

Write = Callable[..., Path]
TEXTS = [" ".join(f"w{(7 * i + k) % 50}" for k in range(1 + 3 * i % 11)) for i in range(30)]


def rows_of(path: Path) -> list[dict[str, str]]:
    header, *lines = path.read_text().splitlines()
    return [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]


def json_of(rule: ExitRule) -> str:
    return rule.model_dump_json(exclude_none=True)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def layers_of(found: Recorded, rule: ExitRule) -> list[int]:
    return [found.traits.exits[index] for index in found.taken(rule).exits]


def deciding(said: Recorded) -> ExitRule:
    """Return a rule by which about half of the texts leave early."""
    if said.traits.task == "regression":
        moved = np.abs(said.logits[1] - said.logits[0])
        return PatienceRule(patience=1, tolerance=float(np.median(moved)))
    return EntropyRule(threshold=float(np.median(said.signals(EntropyRule(threshold=1))[0])))


def answers(folder: Path, texts: Path, rule: ExitRule) -> list[dict[str, Any]]:
    options = {"data": texts, "exit": json_of(rule), "format": "jsonl"}
    result = offramp("predict", folder, out=texts.with_name("out.jsonl"), **options)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in texts.with_name("out.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("task", get_args(Task))
def test_a_bundle_answers_as_its_recording_says(task: Task, texts: Path, tmp_path: Path) -> None:
    folder = write_task_bundle(tmp_path, Kind(task))
    said = recording_of(folder, TEXTS)
    rule = deciding(said)
    found, layers = answers(folder, texts, rule), layers_of(said, rule)
    assert [each["index"] for each in found] == list(range(len(TEXTS)))
    assert [each["exit_layer"] for each in found] == layers
    assert len(set(layers)) > 1, "the rule decides nothing"
    logits = said.taken(rule).logits
    if task == "single_label":
        labels = said.traits.labels
        assert [each["label"] for each in found] == [labels[i] for i in logits.argmax(axis=1)]
    elif task == "multi_label":
        assert [len(each["labels"]) for each in found] == (logits > 0).sum(axis=1).tolist()
    elif task == "regression":
        np.testing.assert_allclose([each["value"] for each in found], logits[:, 0], rtol=1e-5)
    else:
        keys = {key for each in found for entity in each["entities"] for key in entity}
        assert keys >= {"entity", "score", "word", "start", "end"}


def test_a_table_answers_first_and_what_it_is_not_sure_of_goes_on(
    texts: Path, tmp_path: Path
) -> None:
    rows = np.random.default_rng(0).normal(0, 2, (VOCABULARY + BUCKETS, 3)).astype(np.float16)
    folder = add_table(write_task_bundle(tmp_path, Kind("single_label")), rows, temperature=3.0)
    said = recording_of(folder, TEXTS)
    sure = table_confidence("single_label", said.logits[0], 3.0)
    rule = deciding(said.of_exits).model_copy(update={"table": float(np.median(sure))})
    found, taken = answers(folder, texts, rule), said.taken(rule)
    assert {0, 1, 2} <= set(layers := [said.traits.layers[place] for place in taken.exits])
    assert [each["exit_layer"] for each in found] == layers
    labels = [said.traits.labels[i] for i in taken.logits.argmax(axis=1)]
    assert [each["label"] for each in found] == labels


@pytest.mark.parametrize("system", [Pabee, FastBert])
@pytest.mark.parametrize("rule", [EntropyRule(threshold=0.8), PatienceRule(patience=1)])
def test_a_checkpoint_leaves_where_its_recording_says_and_its_operations_are_counted(
    system: Callable[[], Pabee | FastBert], rule: ExitRule, texts: Path, tmp_path: Path
) -> None:
    folder, out = system().save(tmp_path / "checkpoint"), tmp_path / "out.tsv"
    result = offramp("predict", folder, data=texts, out=out, exit=json_of(rule))
    assert result.exit_code == 0, result.output
    loaded = load(folder)
    source = TorchSource(loaded.model, loaded.tokenizer, loaded.max_tokens)
    said = recorded(source, [Text(text) for text in TEXTS])
    rows = rows_of(out)
    assert [int(row["exit_layer"]) for row in rows] == layers_of(said, rule)
    costs = flops_by_exit(loaded.model, said.num_tokens)[MFLOPS]
    expected = costs.of(said.taken(rule).exits, said.compiled(rule))
    np.testing.assert_allclose([float(row["mflops"]) for row in rows], expected, atol=6e-4)


def test_elues_file_lists_the_modules_that_ran(
    model_folder: Path, texts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.tsv"

    def first(rule: ExitRule) -> str:
        options = {"exit": json_of(rule), "format": "elue"}
        assert offramp("predict", model_folder, data=texts, out=out, **options).exit_code == 0
        header, line, *_ = out.read_text().splitlines()
        assert header == "index\tpred\tmodules"
        index, pred, modules = line.split("\t")
        assert (index, pred in "012") == ("0", True)
        return modules

    emb, layer = "(3),emb; ", "; ".join
    asked = [f"(3,32),layer_{i}; (32),exit_{i}" for i in (1, 2)]
    assert first(PatienceRule(patience=1, max_layer=2)) == emb + layer(asked)
    unheard = "(3,32),layer_1; (3,32),layer_2; (32),exit_2"
    assert first(LayerRule(layer=2)) == emb + unheard


@pytest.mark.parametrize("format_", ["tsv", "jsonl", "elue"])
def test_a_stopped_run_goes_on_to_the_same_file(
    format_: str,
    model_folder: Path,
    texts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BLOCK", 8)
    whole, out = tmp_path / "whole", tmp_path / "out"
    options = {"data": texts, "format": format_, "exit": '{"rule": "entropy", "threshold": 0.9}'}
    assert offramp("predict", model_folder, **options, out=whole).exit_code == 0

    own = Predictor.predict

    def interrupted(self: Predictor, block: list[Text], first: int = 0) -> list[Prediction]:
        if first == 8:
            signal.raise_signal(signal.SIGINT)
        return own(self, block, first)

    with monkeypatch.context() as patched:
        patched.setattr(Predictor, "predict", interrupted)
        stopped = offramp("predict", model_folder, **options, out=out)
    assert stopped.exit_code != 0
    assert "--resume goes on" in stopped.output
    assert not out.exists()
    with (tmp_path / "out.partial").open("a") as file:
        file.write("half a line of a run that was killed")
    other = offramp("predict", model_folder, "--resume", **options | {"exit": "quick"}, out=out)
    assert "with another model, data, rule or format" in refusal(other)
    renamed = copytree(model_folder, tmp_path / "renamed")
    config = (renamed / "config.json").read_text()
    (renamed / "config.json").write_text(config.replace('"neutral"', '"mixed"'))
    other = offramp("predict", renamed, "--resume", **options, out=out)
    assert "with another model, data, rule or format" in refusal(other)
    done = offramp("predict", model_folder, "--resume", **options, out=out)
    assert done.exit_code == 0, done.output
    assert out.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob("out.*"))


def test_a_record_of_progress_that_is_none_is_refused(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("good\n")
    (tmp_path / "out.partial").touch()
    (tmp_path / "out.progress.json").write_text("[" * 20_000)
    data, out = tmp_path / "texts.txt", tmp_path / "out"
    stopped = offramp("predict", model_folder, "--resume", data=data, out=out)
    assert "cannot be read: leave --resume out" in refusal(stopped)


def test_what_cannot_be_predicted_is_refused_before_anything_is_run(
    model_folder: Path,
    texts: Path,
    tmp_path: Path,
    write_data: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out.tsv"

    def message(what: Path, *flags: str, **options: object) -> str:
        return refusal(offramp("predict", what, *flags, **{"data": texts, "out": out} | options))

    assert "is the data itself" in message(model_folder, out=texts)
    assert "which is only read" in message(model_folder, out=model_folder / "config.json")
    assert "is a folder" in message(model_folder, out=tmp_path)
    notes = write_data("notes.tsv", ["mine"])
    assert "holds no predictions" in message(model_folder, out=notes)
    assert "not JSON" in message(model_folder, exit='{"rule": entropy}')
    twice = '{"rule": "never", "rule": "entropy", "threshold": 1}'
    assert "'rule' is there twice" in message(model_folder, exit=twice)
    assert "unknown field" in message(model_folder, exit='{"rule": "layer", "layers": 2}')
    assert "no profile 'fastest'; the policy has quick" in message(model_folder, exit="fastest")
    assert "layer" in message(model_folder, exit='{"rule": "layer", "layer": 9}')
    target = '{"target": {"max_disagreement": 0.01}}'
    assert "targets need certified rules" in message(model_folder, exit=target)
    assert "is for bundles" in message(model_folder, precision="int8")
    several = write_task_bundle(tmp_path, Kind("multi_label"))
    assert "is for one label or one number" in message(several, format="elue")
    assert "no bundle that is measured has its layers" in message(several, model=model_folder)
    assert "nothing to resume" in message(model_folder, "--resume")
    pairs = ["text\ttext_pair", *["w1\t"] * 9, "w1\tw2"]
    tagger = write_task_bundle(tmp_path / "tags", Kind("token"))
    monkeypatch.setattr(module, "BLOCK", 8)
    second = message(tagger, data=write_data("pairs.tsv", pairs))
    assert second.startswith("text 9.text_pair: this model labels")
    empty = write_data("empty.txt", [])
    assert "has no texts" in message(model_folder, data=empty)
    assert not out.exists()


def test_a_file_of_the_user_is_no_place_for_predictions(
    model_folder: Path, texts: Path, tmp_path: Path
) -> None:
    own, pipe = tmp_path / "own.tsv.partial", tmp_path / "pipe"
    own.write_text("mine")
    found = refusal(offramp("predict", model_folder, data=texts, out=tmp_path / "own.tsv"))
    assert "exists and holds none" in found
    assert own.read_text() == "mine"
    os.mkfifo(pipe)
    found = refusal(offramp("predict", model_folder, data=texts, out=pipe))
    assert "holds no predictions" in found


@pytest.mark.parametrize("given", ["[" * 100_000, '{"rule": ' + "y" * 5000])
def test_a_long_exit_that_is_no_json_is_refused_briefly(
    given: str, model_folder: Path, texts: Path, tmp_path: Path
) -> None:
    options = {"data": texts, "out": tmp_path / "out.tsv", "exit": given}
    found = refusal(offramp("predict", model_folder, **options))
    assert "not JSON" in found
    assert len(found) < 200


def test_a_target_that_nothing_is_certified_for_runs_all_layers_as_in_a_request(
    bundle_folder: Path, texts: Path, tmp_path: Path
) -> None:
    target, out = '{"target": {"max_disagreement": 0.01}}', tmp_path / "out.tsv"
    result = offramp("predict", bundle_folder, data=texts, out=out, exit=target)
    assert result.exit_code == 0, result.output
    assert "every text runs in full: No rule of" in " ".join(result.output.split())
    assert {row["exit_layer"] for row in rows_of(out)} == {"4"}


def test_labels_need_not_be_known_and_predictions_are_replaced(
    bundle_folder: Path, model_folder: Path, tmp_path: Path, write_data: Write
) -> None:
    data, out = write_data("test.tsv", ["index\tsentence", "7\tw1 w2", "8\tw3"]), tmp_path / "out"
    for exit_ in ("fast", '{"profile": "fast"}', '"fast"'):
        options = {"exit": exit_, "model": model_folder}
        assert offramp("predict", bundle_folder, data=data, out=out, **options).exit_code == 0
        assert [(row["index"], row["exit_layer"]) for row in rows_of(out)] == [
            ("0", "1"),
            ("1", "1"),
        ]
        assert all(float(row["mflops"]) > 0 for row in rows_of(out))
