"""Plain transformers classifiers: heads and configs of all forms, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

from models.checkpoints import LoadedCheckpoint, UnusableCheckpoint, load
from models.encoders.families import read_encoder
from tests.models.conftest import tiny_tokenizer
from tests.support.json_files import rewrite
from tests.support.wordpiece import save_tokenizer

SIZES: dict[str, Any] = {
    "vocab_size": 14,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
    "initializer_range": 0.5,
    "pad_token_id": 0,
    "id2label": {0: "no", 1: "perhaps", 2: "yes"},
}
OWN: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 16},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "distilbert": {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48},
    "electra": {"embedding_size": 16},
    "mobilebert": {"embedding_size": 16, "intra_bottleneck_size": 16},
    "modernbert": {"local_attention": 8, "global_attn_every_n_layers": 2},
}
IDS = torch.tensor([[2, 4, 10, 3]])
MASK = torch.ones_like(IDS)
CLASSES = {
    "texts": AutoModelForSequenceClassification,
    "tokens": AutoModelForTokenClassification,
}


def make(family: str, kind: str = "texts", **config: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    sizes = SIZES | OWN.get(family, {}) | config
    if family == "distilbert":
        sizes = {k: v for k, v in sizes.items() if k not in ("hidden_size", "num_hidden_layers")}
    model = CLASSES[kind].from_config(AutoConfig.for_model(family, **sizes)).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def save(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    save_tokenizer(tiny_tokenizer(), folder)
    return folder


def assert_same(loaded: LoadedCheckpoint, model: PreTrainedModel) -> None:
    with torch.no_grad():
        expected = model(input_ids=IDS, attention_mask=MASK).logits
        found = loaded.model(IDS, MASK, torch.zeros_like(IDS))
    assert len(found) == 1
    torch.testing.assert_close(found[0], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("config", "labels", "task"),
    [
        ({"problem_type": "multi_label_classification"}, ["no", "perhaps", "yes"], "multi_label"),
        ({"id2label": {0: "similarity"}}, ["similarity"], "regression"),
    ],
)
def test_the_config_makes_it_another_task(
    config: dict[str, Any], labels: list[str], task: str, tmp_path: Path
) -> None:
    model = make("roberta", **config)
    loaded = load(save(model, tmp_path))
    assert_same(loaded, model)
    assert (loaded.model.traits.task, loaded.model.labels) == (task, labels)
    assert "`offramp train`" in loaded.info.notes[0], "the note tells where exits come from"


@pytest.mark.parametrize(
    ("family", "config", "message"),
    [
        ("bert", {"problem_type": "regression"}, "a regression with 3 values"),
        ("deberta-v2", {"pooler_hidden_act": "silu"}, "pooler_hidden_act 'silu' is not supported"),
        ("modernbert", {"classifier_activation": "silu"}, "classifier_activation 'silu'"),
        ("bert", {"is_decoder": True}, "is_decoder is True"),
        ("deberta-v2", {"attention_head_size": 16}, "settings do not fit each other"),
        ("mobilebert", {"key_query_shared_bottleneck": False}, "key_query_shared_bottleneck is"),
        ("bert", {"chunk_size_feed_forward": 4}, "chunk_size_feed_forward is 4, where 0 is usual"),
        ("electra", {"position_embedding_type": "relative_key_query"}, "relative_key_query"),
    ],
)
def test_what_is_not_supported_is_refused(
    family: str, config: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UnusableCheckpoint, match=message):
        load(save(make(family, **config), tmp_path))


def test_the_setting_that_makes_no_model_is_named(tmp_path: Path) -> None:
    path = save(make("bert"), tmp_path) / "config.json"
    path.write_text(path.read_text().replace('"hidden_act": "gelu"', '"hidden_act": "gulu"'))
    with pytest.raises(UnusableCheckpoint, match="hidden_act is 'gulu', where 'gelu' is usual"):
        load(tmp_path)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "electra"])
def test_a_config_without_a_model_type_is_known_by_its_weights(family: str, tmp_path: Path) -> None:
    model = make(family)
    save(model, tmp_path)
    rewrite(tmp_path / "config.json", lambda config: config.pop("model_type"))
    loaded = load(tmp_path)
    assert_same(loaded, model)
    assert loaded.info.family == family


def name_class(folder: Path, name: str | None) -> None:
    stated = None if name is None else [name]
    rewrite(folder / "config.json", lambda config: config.update(architectures=stated))


@pytest.mark.parametrize("named", [None, "BertForSequenceClassification"])
def test_a_classifier_without_a_pooler_is_no_tagger_unless_its_class_says_so(
    named: str | None, tmp_path: Path
) -> None:
    save(make("bert", "tokens"), tmp_path)
    name_class(tmp_path, named)
    tagger = r"has bert.pooler.dense.bias too\. .*\[\"BertForTokenClassification\"\]"
    with pytest.raises(UnusableCheckpoint, match=tagger):
        load(tmp_path)


@pytest.mark.parametrize("named", [None, "ModernBertForMaskedLM"])
def test_where_two_classes_have_the_same_weights_the_config_names_one(
    named: str | None, tmp_path: Path
) -> None:
    save(make("modernbert", "tokens"), tmp_path)
    name_class(tmp_path, named)
    both = r"ModernBertForSequenceClassification.*ModernBertForTokenClassification"
    with pytest.raises(UnusableCheckpoint, match=f"names no class .*{both}"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("family", "part"),
    [("distilbert", "pre_classifier"), ("deberta-v2", "pooler.dense")],
)
def test_a_tagger_does_not_read_the_dense_layer_of_a_text_classifier(
    family: str, part: str, tmp_path: Path
) -> None:
    folder = save(make(family, "tokens"), tmp_path)
    dense = {f"{part}.weight": torch.eye(32), f"{part}.bias": torch.zeros(32)}
    save_file(stored(folder) | dense, folder / "model.safetensors")
    with pytest.raises(UnusableCheckpoint, match=rf"no part of \w+ reads {part}"):
        load(folder)


def test_a_model_that_chooses_between_answers_is_no_regression(tmp_path: Path) -> None:
    save(make("bert", num_labels=1), tmp_path)
    name_class(tmp_path, "BertForMultipleChoice")
    with pytest.raises(UnusableCheckpoint, match="BertForMultipleChoice: it scores the choices"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("file", "stated"),
    [
        ("config.json", {"auto_map": {"AutoModelForSequenceClassification": "modeling.Mine"}}),
        ("config.json", {"auto_map": {"AutoConfig": "repo--configuration.Mine"}}),
        ("config.json", {"custom_pipelines": {"mine": {"impl": "pipeline.Mine"}}}),
        ("config.json", {"architectures": ["MyBert"]}),
        ("config.json", {"architectures": ["BertForSequenceClassification", "MyBert"]}),
        ("config.json", {"architectures": "MyBert"}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["tokens.Mine", None]}}),
    ],
)
def test_code_of_the_models_own_is_named_and_refused(
    file: str, stated: dict[str, Any], tmp_path: Path
) -> None:
    folder = save(make("bert"), tmp_path)
    rewrite(folder / file, lambda config: config.update(stated))
    (key,) = stated
    with pytest.raises(UnusableCheckpoint, match=rf"{file}: {key} "):
        load(folder)


def test_weights_that_the_config_names_are_those_that_are_read(tmp_path: Path) -> None:
    path = save(make("bert"), tmp_path) / "config.json"
    rewrite(path, lambda config: config.update(transformers_weights="model.safetensors"))
    assert load(tmp_path)
    rewrite(path, lambda config: config.update(transformers_weights="other.safetensors"))
    with pytest.raises(UnusableCheckpoint, match=r"transformers_weights is 'other.safetensors'"):
        load(tmp_path)


def roberta_head(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Rename a linear classifier, and put a dense layer before it."""
    moved = {name: weights.pop(name) for name in [*weights] if name.startswith("classifier.")}
    outer = {name.replace("classifier", "classifier.out_proj"): moved[name] for name in moved}
    return outer | {
        "classifier.dense.weight": torch.eye(32),
        "classifier.dense.bias": torch.zeros(32),
    }


def bert_head(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Rename a classifier of two layers to a pooler of the encoder and a linear one."""
    moved = {name: weights.pop(name) for name in [*weights] if name.startswith("classifier.")}
    names = {"classifier.dense": "roberta.pooler.dense", "classifier.out_proj": "classifier"}
    return {
        f"{names[name.rpartition('.')[0]]}.{name.rpartition('.')[2]}": value
        for name, value in moved.items()
    }


@pytest.mark.parametrize(("family", "head"), [("bert", roberta_head), ("roberta", bert_head)])
def test_a_head_of_another_familys_shape_is_not_guessed(
    family: str, head: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    folder = save(make(family), tmp_path)
    weights = stored(folder)
    weights |= head(weights)
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(UnusableCheckpoint, match=r"is not that of transformers' .*`offramp train"):
        load(folder)
    assert read_encoder(folder, ["no", "yes"]), "what the message advises works"


def stored(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize(
    ("family", "kind"),
    [("bert", "texts"), ("bert", "tokens"), ("distilbert", "texts"), ("modernbert", "texts")],
)
def test_weights_of_more_layers_than_the_config_says_are_refused(
    family: str, kind: str, tmp_path: Path
) -> None:
    folder = save(make(family, kind), tmp_path)
    depth = "n_layers" if family == "distilbert" else "num_hidden_layers"
    shorter = {depth: 2, "layer_types": None}
    rewrite(folder / "config.json", lambda config: config.update(shorter))
    with pytest.raises(UnusableCheckpoint, match=r"the weights hold \S*layers?\.2\."):
        load(folder)
    with pytest.raises(UnusableCheckpoint, match=r"the weights hold \S*layers?\.2\."):
        read_encoder(folder, ["no", "yes"])


@pytest.mark.parametrize(
    "name",
    [
        "bert.encoder.layer.0.attention.self.distance_embedding.weight",
        "bert.encoder.layer.1.output.adapters.task.adapter_down.0.weight",
        "bert.encoder.layer.0.attention.self.query.lora_A.default.weight",
        "bert.embeddings.entity_embeddings.weight",
    ],
)
def test_weights_inside_the_encoder_that_it_has_no_place_for_are_refused(
    name: str, tmp_path: Path
) -> None:
    folder = save(make("bert"), tmp_path)
    save_file(stored(folder) | {name: torch.ones(2)}, folder / "model.safetensors")
    with pytest.raises(UnusableCheckpoint, match=f"the weights hold {name.removeprefix('bert.')}"):
        load(folder)


# ModernBERT's own names begin with `model.` too.
@pytest.mark.parametrize("family", ["bert", "modernbert"])
@pytest.mark.parametrize("wrapper", ["model.", "_orig_mod.", "model._orig_mod."])
def test_a_model_that_was_saved_inside_another_is_the_same_model(
    family: str, wrapper: str, tmp_path: Path
) -> None:
    model = make(family)
    folder = save(model, tmp_path)
    wrapped = {f"{wrapper}{name}": value for name, value in stored(folder).items()}
    save_file(wrapped, folder / "model.safetensors")
    assert_same(load(folder), model)
