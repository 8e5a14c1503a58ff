"""`offramp inspect` from the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from models.checkpoints import UnusableCheckpoint
from models.inspect import inspect
from tests.support.originals.highway import Berxit, DeeBert
from tests.support.originals.pabee import Pabee

app = typer.Typer()
app.command()(inspect)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_a_checkpoint_is_described(tmp_path: Path) -> None:
    words = " ".join(run(Berxit(divide=1).save(tmp_path)).split())
    assert "format BERxiT, bert, 3 layers" in words
    assert "task single_label: LABEL_0, LABEL_1, LABEL_2" in words
    assert "exits 1, 2, 3" in words
    assert "predicted error" in words
    assert "profile `original`: {'rule': 'learned', 'threshold': 0.005}" in words
    assert "dropped core.*: the encoder once more, under another name" in words
    assert "tokenizer vocab.txt, up to 40 tokens" in words
    assert "agreement with the last exit" in words


def test_programs_get_json(tmp_path: Path) -> None:
    facts = json.loads(run(DeeBert().save(tmp_path), "--json"))
    assert facts["format"] == "DeeBERT"
    assert facts["rule"] is None
    assert facts["exits"] == [1, 2, 3]
    assert facts["dropped"][0]["keys"] == "bert.encoder.highway.2.*"
    assert facts["agreement"].keys() == {"1", "2", "3"}
    assert facts["agreement"]["3"] == 1
    assert facts["best_saving"] is None, "random weights give one answer to all"


def test_a_regression_has_no_agreement(tmp_path: Path) -> None:
    facts = json.loads(run(Pabee(num_labels=1).save(tmp_path), "--json"))
    assert (facts["task"], facts["agreement"], facts["best_saving"]) == ("regression", None, None)


def test_options_change_what_is_described(tmp_path: Path) -> None:
    folder = DeeBert().save(tmp_path)
    assert json.loads(run(folder, "--json", "--last-ramp"))["exits"] == [1, 2, 3, 4]
    assert json.loads(run(folder, "--json", "--layers", 2))["exits"] == [1, 2]


def test_what_is_no_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UnusableCheckpoint, match="holds no model"):
        run(tmp_path)


def test_help_needs_no_torch() -> None:
    code = "import sys, models.inspect; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
