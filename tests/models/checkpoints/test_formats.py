"""Every format: told by its keys, taken apart, and saying what the original's code says."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from models.checkpoints import UnusableCheckpoint, load
from models.multi_exit import MultiExitModel
from serve.rules import ConfidentPatienceRule, EntropyRule, LearnedRule, PatienceRule
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
from tests.support.originals.system import System
from tests.support.originals.transformer import entropy

PCEE = {"ee_mechanism": "V1", "exiting_threshold": 0.4, "do_ensemble": 1, "weights_schema": "asc"}


class FastBertScript(FastBert):
    """What `run_fastbert.py` saves: the same without the package's prefix."""

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


@pytest.mark.parametrize(("make", "format_", "family"), SYSTEMS.values(), ids=SYSTEMS)
def test_every_exit_says_what_the_original_says(
    make: Callable[[], System], format_: str, family: str, tmp_path: Path
) -> None:
    system = make()
    loaded = load(system.save(tmp_path))
    assert (loaded.found.format, loaded.found.family) == (format_, family)
    assert loaded.model.exits == tuple(range(1, system.depth + 1))
    assert loaded.model.labels == [f"LABEL_{i}" for i in range(system.num_labels)]
    assert loaded.model.traits.task == ("regression" if system.num_labels == 1 else "single_label")
    assert "unknown to this format" not in [dropped.why for dropped in loaded.found.dropped]
    for row in system.rows(6):
        ids, types = torch.tensor([row.ids]), torch.tensor([row.types])
        with torch.no_grad():
            found = loaded.model(ids, torch.ones_like(ids), types)
        for said, expected in zip(found, system.logits(row), strict=True):
            torch.testing.assert_close(said[0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", [Berxit, BerxitAlbert, BerxitDistilBert])
def test_berxit_predicts_the_errors_that_the_original_predicts(
    kind: type[Berxit], tmp_path: Path
) -> None:
    system = kind(divide=1)
    loaded = load(system.save(tmp_path))
    assert loaded.model.traits.learned
    for row in system.rows(6):
        ids, types = torch.tensor([row.ids]), torch.tensor([row.types])
        with torch.no_grad():
            found = loaded.model.hear(ids, torch.ones_like(ids), types)
        for i, x in enumerate(system.hidden_states(row)[:-1]):
            assert float(found[i].uncertainty) == pytest.approx(system.uncertainty(i, x), abs=1e-6)


def test_deebert_loses_its_last_ramp_and_says_why(tmp_path: Path) -> None:
    found = load(DeeBert().save(tmp_path)).found
    assert [d.keys for d in found.dropped] == ["bert.encoder.highway.2.*"]
    assert "never trained" in found.dropped[0].why
    assert found.rule is None, "its thresholds are arguments, not part of the checkpoint"


def test_deeberts_last_ramp_can_be_brought_back_as_an_exit_of_its_own(tmp_path: Path) -> None:
    system = DeeBert()
    loaded = load(system.save(tmp_path), last_ramp=True)
    assert loaded.model.exits == (1, 2, 3, 4)
    assert loaded.model.backbone.depth == 3
    assert "exit 4 the main head" in loaded.found.notes[0]
    row = system.rows(1)[0]
    ids, last = torch.tensor([row.ids]), system.hidden_states(row)[-1]
    with torch.no_grad():
        *_, ramp, main = loaded.model(ids, torch.ones_like(ids), torch.tensor([row.types]))
    torch.testing.assert_close(ramp[0], system.ramp(2, last), atol=1e-5, rtol=0)
    torch.testing.assert_close(main[0], system.main(last), atol=1e-5, rtol=0)
    assert entropy(ramp[0]) != pytest.approx(entropy(main[0]), abs=1e-3)
    loaded.model.save(tmp_path / "again")
    assert MultiExitModel.load(tmp_path / "again").exits == (1, 2, 3, 4)


@pytest.mark.parametrize("kind", [Berxit, Pabee, ElasticBert])
def test_only_deebert_has_a_last_ramp_to_bring_back(kind: type[System], tmp_path: Path) -> None:
    with pytest.raises(UnusableCheckpoint, match=r"--last-ramp is for DeeBERT"):
        load(kind().save(tmp_path), last_ramp=True)


def test_berxit_that_learned_to_exit_does_so_by_default_as_the_original(tmp_path: Path) -> None:
    loaded = load(Berxit(divide=1).save(tmp_path))
    assert loaded.found.rule == LearnedRule(threshold=0.005)
    assert loaded.policy.rule_for("original") == LearnedRule(threshold=0.005)
    assert loaded.policy.rule_for(None).rule == "never"
    assert (loaded.trained_for.method, loaded.trained_for.rule) == ("BERxiT", loaded.found.rule)
    assert "core.*" in [dropped.keys for dropped in loaded.found.dropped]


def test_berxit_that_never_learned_to_exit_has_no_such_output(tmp_path: Path) -> None:
    loaded = load(Berxit().save(tmp_path))
    assert not loaded.model.traits.learned
    assert loaded.found.rule is None
    assert ("bert.encoder.lte_classifier.*", "never trained: its bias is still exactly 0") in [
        tuple(dropped) for dropped in loaded.found.dropped
    ]


def test_berxit_weights_are_believed_over_its_config(tmp_path: Path) -> None:
    system = Berxit(divide=1)
    system.state["bert.encoder.lte_classifier.bias"].zero_()
    found = load(system.save(tmp_path / "claims")).found
    assert found.notes == (
        "config.json says that the learned exit was trained, but its bias is still 0",
    )
    system = Berxit(divide=1)
    del system.config["divide"]
    loaded = load(system.save(tmp_path / "silent"))
    assert loaded.model.traits.learned
    assert "its weights do" in loaded.found.notes[0]


def test_pcee_states_its_settings_and_its_rule_once_it_states_them_all(tmp_path: Path) -> None:
    found = load(Pcee(**PCEE).save(tmp_path / "without")).found
    assert found.rule is None, "patience is an argument of its script"
    assert found.settings == PCEE
    assert '"threshold": 0.4, "patience": P, "ensemble": "run"' in found.asked_for
    found = load(Pcee(**PCEE, patience=2).save(tmp_path / "with")).found
    assert found.rule == ConfidentPatienceRule(threshold=0.4, patience=2, ensemble="run")


@pytest.mark.parametrize(("config", "rule"), [({"patience": 3}, 3), ({"patience": 0}, None)])
def test_pabee_settings_become_the_rule(
    config: dict[str, Any], rule: int | None, tmp_path: Path
) -> None:
    found = load(Pabee(**config).save(tmp_path)).found
    assert found.rule == (PatienceRule(patience=rule) if rule else None)


def test_pabee_regression_needs_its_tolerance(tmp_path: Path) -> None:
    stated = {"patience": 2, "regression_threshold": 0.1}
    found = load(Pabee(num_labels=1, **stated).save(tmp_path)).found
    assert found.rule == PatienceRule(patience=2, tolerance=0.1)


def test_elasticbert_keeps_its_own_norm_and_rule(tmp_path: Path) -> None:
    loaded = load(ElasticBert(early_exit_entropy=0.4).save(tmp_path))
    assert loaded.model.config.layer_norm_eps == 1e-8
    assert loaded.found.rule == EntropyRule(threshold=0.4)
    assert [d.keys for d in loaded.found.dropped] == ["elasticbert.embeddings.position_ids"]


def test_elasticbert_has_exits_where_pooler_and_classifier_are(tmp_path: Path) -> None:
    system = ElasticBert()
    for part in ("weight", "bias"):
        del system.state[f"elasticbert.encoder.pooler.1.dense.{part}"]
    loaded = load(system.save(tmp_path))
    assert loaded.model.exits == (1, 3)
    assert loaded.found.notes == ("no exit after layers 2: pooler or classifier is missing",)
    assert [tuple(d) for d in loaded.found.dropped][1:] == [
        ("classifiers.1.weight and 1 more", "a classifier without a pooler")
    ]
    row = system.rows(1)[0]
    ids = torch.tensor([row.ids])
    with torch.no_grad():
        said = loaded.model(ids, torch.ones_like(ids), torch.tensor([row.types]))
    for i, layer in enumerate((1, 3)):
        pooled = torch.tanh(
            system.hidden_states(row)[layer - 1][0]
            @ system.state[f"elasticbert.encoder.pooler.{layer - 1}.dense.weight"].T
            + system.state[f"elasticbert.encoder.pooler.{layer - 1}.dense.bias"]
        )
        weight, bias = (system.state[f"classifiers.{layer - 1}.{p}"] for p in ("weight", "bias"))
        torch.testing.assert_close(said[i][0], pooled @ weight.T + bias, atol=1e-5, rtol=0)


def test_elasticbert_with_output_layers_at_its_end_only_counts_classifiers_from_there(
    tmp_path: Path,
) -> None:
    system = ElasticBert(num_output_layers=2, max_output_layers=3)
    for name in [n for n in system.state if "pooler.0." in n or n.startswith("classifiers.2.")]:
        del system.state[name]
    assert load(system.save(tmp_path)).model.exits == (2, 3)


def test_pretrained_elasticbert_is_refused_with_the_reason(tmp_path: Path) -> None:
    system = ElasticBert()
    for name in [name for name in system.state if name.startswith("classifiers.")]:
        del system.state[name]
    with pytest.raises(UnusableCheckpoint, match="pretrained only: it has no classifiers"):
        load(system.save(tmp_path))


@pytest.mark.parametrize(
    ("key", "value"), [("pooling", "mean"), ("encoder", "gpt"), ("subword_type", "char")]
)
def test_fastbert_of_another_shape_is_refused(key: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(UnusableCheckpoint, match=r"not supported"):
        load(FastBert(**{key: value}).save(tmp_path))


def test_fastbert_survives_being_saved_as_a_model_of_ours(tmp_path: Path) -> None:
    model = load(FastBert().save(tmp_path / "theirs")).model
    model.save(tmp_path / "ours")
    again = MultiExitModel.load(tmp_path / "ours")
    ids = torch.tensor([[101, 105, 120]])
    types, mask = torch.ones_like(ids), torch.ones_like(ids)
    for before, after in zip(model(ids, mask, types), again(ids, mask, types), strict=True):
        assert torch.equal(before, after)


def test_sledgehammer_is_known_and_refused(tmp_path: Path) -> None:
    system = DeeBert()
    system.draw.state = {
        "_bert_model._sum_weights.0": torch.ones(2),
        "_classification_layers.0.weight": torch.ones(2, 2),
    }
    with pytest.raises(UnusableCheckpoint, match=r"a Sledgehammer checkpoint: .*`offramp train`"):
        load(system.save(tmp_path))


def test_labels_come_from_the_checkpoint(tmp_path: Path) -> None:
    names = {"0": "sad", "1": "so-so", "2": "glad"}
    assert load(DeeBert(id2label=names).save(tmp_path)).model.labels == ["sad", "so-so", "glad"]


def test_labels_that_do_not_fit_their_number_are_not_believed(tmp_path: Path) -> None:
    names = {"0": "no", "1": "yes"}
    labels = load(DeeBert(id2label=names).save(tmp_path)).model.labels
    assert labels == ["LABEL_0", "LABEL_1", "LABEL_2"]


def test_a_missing_weight_is_named(tmp_path: Path) -> None:
    system = DeeBert()
    del system.state["bert.encoder.layer.1.output.dense.bias"]
    with pytest.raises(UnusableCheckpoint, match=r"the encoder: .*layer\.1\.output\.dense\.bias"):
        load(system.save(tmp_path / "encoder"))
    system = DeeBert()
    del system.state["bert.encoder.highway.0.classifier.bias"]
    with pytest.raises(UnusableCheckpoint, match=r"no .*highway\.0\.classifier\.bias: is it"):
        load(system.save(tmp_path / "head"))


def test_a_config_of_another_size_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(UnusableCheckpoint, match=r"word_embeddings.weight has shape \[60, 32\]"):
        load(DeeBert(vocab_size=70).save(tmp_path))


def test_unknown_keys_are_dropped_aloud(tmp_path: Path) -> None:
    system = Pabee()
    system.state["something.else"] = torch.ones(1)
    dropped = load(system.save(tmp_path)).found.dropped
    assert [tuple(each) for each in dropped] == [("something.else", "unknown to this format")]


def test_a_bare_encoder_is_no_classifier(tmp_path: Path) -> None:
    system = DeeBert()
    for name in [n for n in system.state if "highway" in n or n.startswith("classifier")]:
        del system.state[name]
    with pytest.raises(UnusableCheckpoint, match="A bare encoder can be given exits"):
        load(system.save(tmp_path))


def test_families_that_are_not_supported_are_named(tmp_path: Path) -> None:
    system = DeeBert(model_type="canine")
    for name in [name for name in system.state if "highway" in name]:
        del system.state[name]
    with pytest.raises(UnusableCheckpoint, match="encoders of type 'canine' are not supported"):
        load(system.save(tmp_path))


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


def test_pruned_heads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableCheckpoint, match="pruned heads"):
        load(DeeBert(pruned_heads={"0": [1]}).save(tmp_path))


def test_a_shorter_model_answers_at_its_new_last_exit(tmp_path: Path) -> None:
    system = Pabee()
    loaded = load(system.save(tmp_path), layers=2)
    assert (loaded.model.exits, loaded.model.backbone.depth) == ((1, 2), 2)
    row = system.rows(1)[0]
    ids = torch.tensor([row.ids])
    with torch.no_grad():
        said = loaded.model(ids, torch.ones_like(ids), torch.tensor([row.types]))
    for found, expected in zip(said, system.logits(row)[:2], strict=True):
        torch.testing.assert_close(found[0], expected, atol=1e-5, rtol=0)


def test_our_own_folders_are_checkpoints_too(tmp_path: Path) -> None:
    loaded = load(PabeeAlbert().save(tmp_path / "theirs"))
    loaded.model.save(tmp_path / "ours")
    (tmp_path / "ours" / "tokenizer.json").write_text(loaded.tokenizer)
    again = load(tmp_path / "ours")
    assert again.found.format == "Offramp"
    assert again.trained_for.method is None
    for name, value in loaded.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], value), name


def test_a_damaged_description_of_exits_is_named(tmp_path: Path) -> None:
    load(Pabee().save(tmp_path)).model.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["offramp"]["exits"] = "all"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnusableCheckpoint, match=r"config\.json: offramp: exits: "):
        load(tmp_path)
