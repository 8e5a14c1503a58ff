"""Every format: recognised by its keys, and equal to the original's code at every exit."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from models.checkpoints import UnusableCheckpoint, load
from models.heads import HeadOutput
from models.multi_exit import MultiExitModel
from serve.policy.document import Policy
from serve.rules import ConfidentPatienceRule, EntropyRule, LearnedRule, PatienceRule
from tests.support.json_files import rewrite
from tests.support.originals.elasticbert import ElasticBert
from tests.support.originals.fastbert import FastBert
from tests.support.originals.highway import (
    Berxit,
    BerxitAlbert,
    BerxitDistilBert,
    BerxitRoberta,
    DeeBert,
    DeeRoberta,
)
from tests.support.originals.pabee import Pabee, PabeeAlbert, Pcee, PceeAlbert
from tests.support.originals.system import Row, System
from tests.support.originals.transformer import linear

PCEE = {"ee_mechanism": "V1", "exiting_threshold": 0.4, "do_ensemble": 1, "weights_schema": "asc"}


class FastBertScript(FastBert):
    """The file that `run_fastbert.py` saves: weights without the package's prefix."""

    prefix = ""


SYSTEMS: dict[str, tuple[Callable[[], System], str, str]] = {
    "DeeBERT": (DeeBert, "DeeBERT", "bert"),
    "DeeBERT, RoBERTa": (DeeRoberta, "DeeBERT", "roberta"),
    "BERxiT": (partial(Berxit, divide=1), "BERxiT", "bert"),
    "BERxiT without learning to exit": (Berxit, "BERxiT", "bert"),
    "BERxiT, RoBERTa": (partial(BerxitRoberta, divide=1), "BERxiT", "roberta"),
    "BERxiT, ALBERT": (partial(BerxitAlbert, divide=1), "BERxiT", "albert"),
    "BERxiT, DistilBERT": (partial(BerxitDistilBert, divide=1), "BERxiT", "distilbert"),
    "PABEE": (Pabee, "PABEE", "bert"),
    "PABEE, ALBERT": (PabeeAlbert, "PABEE", "albert"),
    "PABEE, a regression": (partial(Pabee, num_labels=1), "PABEE", "bert"),
    "PCEE-BERT": (partial(Pcee, **PCEE), "PCEE-BERT", "bert"),
    "PCEE-BERT, ALBERT": (partial(PceeAlbert, **PCEE), "PCEE-BERT", "albert"),
    "PCEE-BERT's other mechanism": (partial(Pcee, ee_mechanism="V0"), "PABEE", "bert"),
    "ElasticBERT": (ElasticBert, "ElasticBERT", "bert"),
    "FastBERT": (FastBert, "FastBERT", "bert"),
    "FastBERT's script": (FastBertScript, "FastBERT", "bert"),
}


def outputs(model: MultiExitModel, row: Row) -> list[HeadOutput]:
    ids = torch.tensor([row.ids])
    with torch.no_grad():
        return model.exit_outputs(ids, torch.ones_like(ids), torch.tensor([row.types]))


def assert_equal_logits(model: MultiExitModel, row: Row, expected: list[torch.Tensor]) -> None:
    for output, logits in zip(outputs(model, row), expected, strict=True):
        torch.testing.assert_close(output.logits[0], logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("make", "format_", "family"), SYSTEMS.values(), ids=SYSTEMS)
def test_every_exit_answers_like_the_original(
    make: Callable[[], System], format_: str, family: str, tmp_path: Path
) -> None:
    system = make()
    loaded = load(system.save(tmp_path))
    assert (loaded.info.format, loaded.info.family) == (format_, family)
    assert loaded.model.exits == tuple(range(1, system.depth + 1))
    assert loaded.model.labels == [f"LABEL_{i}" for i in range(system.num_labels)]
    assert loaded.model.traits.task == ("regression" if system.num_labels == 1 else "single_label")
    assert "unknown to this format" not in [dropped.why for dropped in loaded.info.dropped]
    for row in system.rows(6):
        assert_equal_logits(loaded.model, row, system.logits(row))


@pytest.mark.parametrize("kind", [Berxit, BerxitAlbert, BerxitDistilBert])
def test_berxit_predicts_the_same_errors_as_the_original(
    kind: type[Berxit], tmp_path: Path
) -> None:
    system = kind(divide=1)
    loaded = load(system.save(tmp_path))
    assert loaded.model.traits.learned
    for row in system.rows(6):
        found = outputs(loaded.model, row)
        for i, x in enumerate(system.hidden_states(row)[:-1]):
            assert float(found[i].uncertainty) == pytest.approx(system.uncertainty(i, x), abs=1e-6)


def test_deebert_loses_its_last_ramp_and_the_reason_is_given(tmp_path: Path) -> None:
    info = load(DeeBert().save(tmp_path)).info
    assert [d.keys for d in info.dropped] == ["bert.encoder.highway.2.*"]
    assert "never trained" in info.dropped[0].why
    assert info.rule is None, "its thresholds are arguments, not part of the checkpoint"


def test_deeberts_last_ramp_can_become_an_exit(tmp_path: Path) -> None:
    loaded = load(DeeBert().save(tmp_path), last_ramp=True)
    assert loaded.model.exits == (1, 2, 3, 4)
    assert loaded.model.backbone.depth == 3
    assert "exit 4 the main head" in loaded.info.notes[0]
    loaded.model.save(tmp_path / "again")
    assert MultiExitModel.load(tmp_path / "again").exits == (1, 2, 3, 4)


@pytest.mark.parametrize("kind", [Berxit, Pabee, ElasticBert])
def test_only_deebert_has_a_last_ramp(kind: type[System], tmp_path: Path) -> None:
    with pytest.raises(UnusableCheckpoint, match=r"--last-ramp is for DeeBERT"):
        load(kind().save(tmp_path), last_ramp=True)


def test_berxit_that_never_learned_to_exit_predicts_no_errors(tmp_path: Path) -> None:
    loaded = load(Berxit().save(tmp_path))
    assert not loaded.model.traits.learned
    assert loaded.info.rule is None
    assert ("bert.encoder.lte_classifier.*", "never trained: its bias is still exactly 0") in [
        tuple(dropped) for dropped in loaded.info.dropped
    ]


def test_berxits_weights_count_more_than_its_config(tmp_path: Path) -> None:
    system = Berxit(divide=1)
    system.state["bert.encoder.lte_classifier.bias"].zero_()
    info = load(system.save(tmp_path / "stated")).info
    warning = "config.json says that the learned exit was trained, but its bias is still 0"
    assert info.notes == (warning,)
    system = Berxit(divide=1)
    del system.config["divide"]
    loaded = load(system.save(tmp_path / "unstated"))
    assert loaded.model.traits.learned
    assert "its weights do" in loaded.info.notes[0]


@pytest.mark.parametrize(
    ("system", "rule"),
    [
        (partial(Pcee, **PCEE), None),  # patience is an argument of its script
        (
            partial(Pcee, **PCEE, patience=2),
            ConfidentPatienceRule(threshold=0.4, patience=2, ensemble="run"),
        ),
        (partial(Pabee, patience=3), PatienceRule(patience=3)),
        (partial(Pabee, patience=0), None),
        (
            partial(Pabee, num_labels=1, patience=2, regression_threshold=0.1),
            PatienceRule(patience=2, tolerance=0.1),
        ),
        (partial(ElasticBert, early_exit_entropy=0.4), EntropyRule(threshold=0.4)),
        (partial(Berxit, divide=1), LearnedRule(threshold=0.005)),
    ],
)
def test_settings_in_the_config_become_the_rule(
    system: Callable[[], System], rule: Any, tmp_path: Path
) -> None:
    loaded = load(system().save(tmp_path))
    assert loaded.info.rule == loaded.trained_for.rule == rule
    assert loaded.policy == Policy(profiles={"original": rule} if rule else {})


def test_pcees_settings_are_reported(tmp_path: Path) -> None:
    info = load(Pcee(**PCEE).save(tmp_path)).info
    assert info.settings == PCEE
    assert '"threshold": 0.4, "patience": P, "ensemble": "run"' in info.rule_hint


def test_elasticbert_keeps_its_norm(tmp_path: Path) -> None:
    loaded = load(ElasticBert().save(tmp_path))
    assert loaded.model.config.layer_norm_eps == 1e-8
    assert [d.keys for d in loaded.info.dropped] == ["elasticbert.embeddings.position_ids"]


def test_elasticbert_has_exits_where_pooler_and_classifier_are(tmp_path: Path) -> None:
    system = ElasticBert().without("pooler.1.dense")
    loaded = load(system.save(tmp_path))
    assert loaded.model.exits == (1, 3)
    assert loaded.info.notes == ("no exit after layers 2: pooler or classifier is missing",)
    assert [tuple(d) for d in loaded.info.dropped][1:] == [
        ("classifiers.1.weight and 1 more", "a classifier without a pooler")
    ]
    row, expected = system.rows(1)[0], []
    for index in (0, 2):
        first = system.hidden_states(row)[index][0]
        pooler = f"elasticbert.encoder.pooler.{index}.dense"
        pooled = torch.tanh(linear(system.state, pooler, first))
        expected.append(linear(system.state, f"classifiers.{index}", pooled))
    assert_equal_logits(loaded.model, row, expected)


def test_elasticberts_classifiers_are_counted_from_the_first_output_layer(tmp_path: Path) -> None:
    system = ElasticBert(num_output_layers=2, max_output_layers=3)
    system.without("pooler.0.", "classifiers.2.")
    assert load(system.save(tmp_path)).model.exits == (2, 3)


def test_fastbert_survives_being_saved_as_an_offramp_model(tmp_path: Path) -> None:
    model = load(FastBert().save(tmp_path / "theirs")).model
    model.save(tmp_path / "ours")
    again = MultiExitModel.load(tmp_path / "ours")
    row = Row([101, 105, 120], [1, 1, 1])
    for before, after in zip(outputs(model, row), outputs(again, row), strict=True):
        assert torch.equal(before.logits, after.logits)


def test_sledgehammer_is_recognised_and_refused(tmp_path: Path) -> None:
    system = DeeBert()
    system.draw.state = {
        "_bert_model._sum_weights.0": torch.ones(2),
        "_classification_layers.0.weight": torch.ones(2, 2),
    }
    with pytest.raises(UnusableCheckpoint, match=r"a Sledgehammer checkpoint.*: .*`offramp train`"):
        load(system.save(tmp_path))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(FastBert, pooling="mean"), "not supported"),
        (partial(FastBert, encoder="gpt"), "not supported"),
        (partial(FastBert, subword_type="char"), "not supported"),
        (lambda: ElasticBert().without("classifiers."), "pretrained only.*offramp train --encoder"),
        (
            lambda: DeeBert().without("encoder.layer.1.output.dense.bias"),
            r"the encoder: .*layer\.1\.output\.dense\.bias",
        ),
        (
            lambda: DeeBert().without("highway.0.classifier.bias"),
            r"no .*highway\.0\.classifier\.bias: is it",
        ),
        (partial(DeeBert, vocab_size=70), r"word_embeddings.weight has shape \[60, 32\]"),
        (lambda: DeeBert().without("highway", "classifier"), "A bare encoder can be given exits"),
        (
            lambda: DeeBert(model_type="canine").without("highway"),
            "encoders of type 'canine' are not supported",
        ),
        (
            lambda: DeeBert(model_type="gpt2").without("highway", "classifier"),
            "encoders of type 'gpt2' are not supported",
        ),
        (partial(DeeBert, pruned_heads={"0": [1]}), "pruned_heads is .* not supported"),
        (partial(Pabee, position_embedding_type="relative_key"), "position_embedding_type"),
        (partial(ElasticBert, is_decoder=True), "is_decoder is True, which is not supported"),
    ],
)
def test_a_checkpoint_that_cannot_be_served_is_refused_with_the_reason(
    make: Callable[[], System], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UnusableCheckpoint, match=message):
        load(make().save(tmp_path))


@pytest.mark.parametrize(
    "name", ["something.else", "crf.transitions", "lte_classifier.weight", "topic_head.weight"]
)
@pytest.mark.parametrize("kind", [Pabee, DeeBert, ElasticBert, FastBert, DeeRoberta])
def test_weights_that_nothing_reads_are_refused_by_name(
    kind: type[System], name: str, tmp_path: Path
) -> None:
    system = kind()
    system.state[name] = torch.ones(1)
    with pytest.raises(UnusableCheckpoint, match=rf"no part of \w+ reads {name}\."):
        load(system.save(tmp_path))


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        (Pabee, "num_hidden_layers"),
        (PabeeAlbert, "num_hidden_layers"),
        (DeeBert, "num_hidden_layers"),
        (BerxitDistilBert, "n_layers"),
        (ElasticBert, "num_hidden_layers"),
        (FastBert, "layers_num"),
    ],
)
def test_a_model_is_never_served_without_its_last_layers(
    kind: type[System], setting: str, tmp_path: Path
) -> None:
    with pytest.raises((UnusableCheckpoint, ValueError), match=r"\b(layer|exit|highway)"):
        load(kind(**{setting: 2}).save(tmp_path))


@pytest.mark.parametrize(
    "name", ["cls.predictions.bias", "lm_head.bias", "criterion.weight", "loss_fct.weight"]
)
def test_what_belongs_to_no_answer_is_named_as_dropped(name: str, tmp_path: Path) -> None:
    system = Pabee()
    system.state[name] = torch.ones(1)
    assert [each.keys for each in load(system.save(tmp_path)).info.dropped] == [name]


@pytest.mark.parametrize(
    ("content", "message"), [(None, "config.json is missing"), ("[1", "not JSON"), ("[]", "object")]
)
def test_a_folder_without_a_proper_config_is_refused(
    content: str | None, message: str, tmp_path: Path
) -> None:
    DeeBert().save(tmp_path)
    (tmp_path / "config.json").unlink()
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UnusableCheckpoint, match=message):
        load(tmp_path)


def test_a_shorter_model_answers_at_its_new_last_exit(tmp_path: Path) -> None:
    system = Pabee()
    loaded = load(system.save(tmp_path), layers=2)
    assert (loaded.model.exits, loaded.model.backbone.depth) == ((1, 2), 2)
    row = system.rows(1)[0]
    assert_equal_logits(loaded.model, row, system.logits(row)[:2])


def test_offramps_own_folders_are_checkpoints_too(tmp_path: Path) -> None:
    loaded = load(PabeeAlbert().save(tmp_path / "theirs"))
    loaded.model.save(tmp_path / "ours")
    (tmp_path / "ours" / "tokenizer.json").write_text(loaded.tokenizer)
    again = load(tmp_path / "ours")
    assert again.info.format == "Offramp"
    assert again.trained_for.method is None
    for name, value in loaded.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], value), name
    rewrite(tmp_path / "ours/config.json", lambda config: config["offramp"].update(exits="all"))
    with pytest.raises(UnusableCheckpoint, match=r"config\.json: offramp: exits: "):
        load(tmp_path / "ours")
