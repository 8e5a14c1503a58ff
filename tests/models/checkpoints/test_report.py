"""`offramp inspect` from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from models.encoders.bert import BertBackbone
from tests.models.conftest import offramp, refusal
from tests.support.originals.highway import Berxit, DeeBert
from tests.support.originals.pabee import Pabee


def report(*arguments: object) -> dict[str, Any]:
    result = offramp("inspect", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_checkpoint_is_described(tmp_path: Path) -> None:
    words = " ".join(offramp("inspect", Berxit(divide=1).save(tmp_path)).stdout.split())
    for expected in (
        "format BERxiT, bert, 3 layers",
        "task single_label: LABEL_0, LABEL_1, LABEL_2",
        "exits 1, 2, 3",
        "predicted error",
        "profile `original`: {'rule': 'learned', 'threshold': 0.005}",
        "dropped core.*: the encoder once more, under another name",
        "tokenizer vocab.txt, up to 40 tokens",
        "agreement with the last exit",
    ):
        assert expected in words


def test_programs_get_json(tmp_path: Path) -> None:
    folder = DeeBert().save(tmp_path)
    facts = report(folder)
    assert (facts["format"], facts["rule"], facts["exits"]) == ("DeeBERT", None, [1, 2, 3])
    assert facts["dropped"][0]["keys"] == "bert.encoder.highway.2.*"
    assert "logits of BertForSequenceClassification to " in facts["compared"]
    assert facts["agreement"].keys() == {"1", "2", "3"}
    assert facts["agreement"]["3"] == 1
    assert report(folder, "--last-ramp")["exits"] == [1, 2, 3, 4]
    assert report(folder, "--layers", 2)["exits"] == [1, 2]


def test_what_export_refuses_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = BertBackbone.layer
    monkeypatch.setattr(BertBackbone, "layer", lambda *given: 1.01 * right(*given))
    facts = report(DeeBert().save(tmp_path))
    assert facts["compared"] == ""
    assert "`offramp export` refuses it: " in facts["warnings"][-1]
    assert "the model differs from transformers: in " in facts["warnings"][-1]


def test_a_regression_has_no_agreement(tmp_path: Path) -> None:
    facts = report(Pabee(num_labels=1).save(tmp_path))
    assert (facts["task"], facts["agreement"]) == ("regression", None)


def test_a_folder_without_a_checkpoint_is_refused_in_one_sentence(tmp_path: Path) -> None:
    assert "holds no model" in refusal(offramp("inspect", tmp_path))
