"""Plain classifiers and taggers of transformers on their whole way into a bundle."""

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, DistilBertConfig
from transformers import DistilBertForTokenClassification as DistilBertTagger

from export import bundle as bundles
from export.cli import export
from serve.bundle.loader import load_bundle
from serve.tokenization.inputs import InputReader
from serve.tokenization.tokenizer import Text
from tests.export.conftest import offramp
from tests.support.tiny import SPECIAL, WORDS, tiny_tokenizer, write_tiny_classifier
from tests.support.tokenizer_folders import write_folder
from tests.support.wordpiece import save_tokenizer

TAGS = {0: "O", 1: "B-X", 2: "I-X"}


@pytest.fixture
def tagger(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = DistilBertConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        dim=32,
        n_layers=3,
        n_heads=4,
        hidden_dim=48,
        max_position_embeddings=32,
        id2label=TAGS,
        initializer_range=0.3,
    )
    folder = tmp_path / "tagger"
    DistilBertTagger(config).save_pretrained(folder)
    save_tokenizer(tiny_tokenizer(), folder)
    return folder


def test_a_tagger_cut_short_becomes_a_bundle_of_its_task(tagger: Path, tmp_path: Path) -> None:
    planned = bundles.plan(tagger, ("fp32", "int8"), layers=2)
    written = bundles.write(planned, tmp_path / "bundle")
    assert load_bundle(tmp_path / "bundle").manifest == written
    assert (written.task, written.labels) == ("token", ("O", "B-X", "I-X"))
    assert (written.head.pooling, written.head.pooler) == ("tokens", False)
    assert (written.exit_layers, written.token_types) == ((2,), False)
    assert written.trained_for.method == "transformers"
    exact, coarse = (written.variants[p].parity for p in ("fp32", "int8"))
    assert exact.max_logit_error < 1e-5 < coarse.max_logit_error < 1
    assert exact.label_agreement == 1
    assert 0.8 < coarse.label_agreement <= 1
    assert exact.rows == coarse.rows > 50


def test_a_regression_keeps_the_name_of_its_value_and_counts_no_labels(tmp_path: Path) -> None:
    stars = {"id2label": {0: "stars"}, "label2id": {"stars": 0}}
    folder = write_tiny_classifier(
        tmp_path / "model", num_hidden_layers=1, type_vocab_size=3, **stars
    )
    out = tmp_path / "bundle"
    result = offramp(export, folder, "--out", out, "--precision", "fp32")
    assert "fp32: largest logit error" in result.stderr
    assert "label" not in result.stderr
    written = load_bundle(out).manifest
    assert (written.task, written.labels) == ("regression", ("stars",))
    assert (written.head.pooling, written.head.pooler) == ("first", True)
    assert (written.vocab_size, written.type_vocab_size) == (len(SPECIAL) + len(WORDS), 3)


def test_a_bundle_has_the_ids_and_the_limit_of_transformers(tmp_path: Path) -> None:
    settings = {"do_lower_case": False, "model_max_length": 9, "extra_special_tokens": ["[TGT]"]}
    folder = write_folder(
        tmp_path / "model", "lowercasing tokenizer.json", {"tokenizer_config.json": settings}
    )
    reference = AutoTokenizer.from_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = BertConfig(vocab_size=len(reference), intermediate_size=32, **sizes)
    BertForSequenceClassification(config).save_pretrained(folder)
    planned = bundles.plan(folder, ("fp32",))
    bundles.write(planned, tmp_path / "bundle")
    bundle = load_bundle(tmp_path / "bundle")
    reader = InputReader(bundle.tokenizer_path, bundle.manifest)
    for text in ("The Film [TGT] the", "the film " * 9):
        (found,) = reader.read([Text(text)], truncate=True)
        assert found.input_ids.tolist() == reference(text, truncation=True)["input_ids"]
