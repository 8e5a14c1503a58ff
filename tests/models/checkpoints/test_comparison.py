"""What is served is compared with transformers' own classes; a difference stops it."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from models.checkpoints import UnusableCheckpoint, load
from models.checkpoints.comparison import compare, served_by
from models.encoders.families import FAMILIES
from serve.tokenization.tokenizer import TextEncoder
from tests.models.checkpoints.test_plain_classifier import CLASSES, make, save
from tests.models.conftest import WORDS
from tests.support.json_files import rewrite
from tests.support.originals.elasticbert import ElasticBert
from tests.support.originals.fastbert import FastBert
from tests.support.originals.highway import Berxit, BerxitDistilBert, DeeBert, DeeRoberta
from tests.support.originals.pabee import Pabee, PabeeAlbert
from tests.support.originals.system import System
from tests.support.wordpiece import mpnet_wordpiece, save_tokenizer, wordpiece


def saved(model: PreTrainedModel, folder: Path) -> Path:
    """Save a model with a tokenizer whose padding token is the family's."""
    save(model, folder)
    if model.config.model_type == "mpnet":
        save_tokenizer(mpnet_wordpiece(WORDS), folder)
    return folder


def compared(folder: Path) -> str:
    loaded = load(folder)
    return compare(folder, loaded, served_by(loaded))


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_plain_classifier_of_every_family_is_read_and_says_what_transformers_says(
    family: str, kind: str, tmp_path: Path
) -> None:
    model = make(family, kind)
    loaded = load(saved(model, tmp_path))
    said = compare(tmp_path, loaded, served_by(loaded))
    assert "the ids of TokenizersBackend in " in said
    assert f"logits of {type(model).__name__} to " in said
    assert "not compared" not in said.lower()
    task = "token" if kind == "tokens" else "single_label"
    assert (loaded.info.format, loaded.info.family) == ("transformers", family)
    assert (loaded.model.exits, loaded.model.traits.task) == ((3,), task)
    assert loaded.model.labels == ["no", "perhaps", "yes"]


def test_an_unknown_word_that_is_the_models_padding_is_told(tmp_path: Path) -> None:
    said = compared(save(make("mpnet"), tmp_path))
    assert "Not compared: in every sample text are tokens that the model takes for padding" in said


@pytest.mark.parametrize(
    ("family", "config"),
    [
        *(("bert", {"hidden_act": name}) for name in ("relu", "silu", "gelu_new")),
        ("bert", {"layer_norm_eps": 1e-3}),
        ("bert", {"type_vocab_size": 1}),
        ("bert", {"use_cache": False, "classifier_dropout": 0.5, "problem_type": "regression",
                  "id2label": {0: "value"}}),
        ("bert", {"attn_implementation": "eager"}),
        ("roberta", {"pad_token_id": 13}),
        ("roberta", {"type_vocab_size": 2}),
        ("albert", {"embedding_size": 32, "hidden_act": "gelu"}),
        ("electra", {"embedding_size": 32}),
        ("distilbert", {"sinusoidal_pos_embds": True, "activation": "relu"}),
        ("deberta-v2", {"relative_attention": False, "position_biased_input": True}),
        ("deberta-v2", {"share_att_key": True, "position_buckets": 4}),
        ("deberta-v2", {"norm_rel_ebd": "layer_norm"}),
        ("deberta-v2", {"conv_kernel_size": 3, "conv_act": "gelu"}),
        ("mobilebert", {"trigram_input": False, "normalization_type": "layer_norm"}),
        ("modernbert", {"local_attention": 4, "hidden_activation": "relu"}),
        ("modernbert", {"classifier_pooling": "mean", "classifier_activation": "relu"}),
        ("modernbert", {"sliding_window": 1}),
        ("modernbert", {"classifier_pooling": "mean", "norm_bias": True, "classifier_bias": True}),
        ("modernbert", {"classifier_activation": "tanh"}),
        ("mobilebert", {"classifier_activation": False}),
        ("deberta-v2", {"pooler_hidden_act": "tanh"}),
        ("albert", {"type_vocab_size": 1}),
        ("mpnet", {"relative_attention_num_buckets": 64}),
        ("xlm-roberta", {"hidden_act": "relu"}),
    ],
)  # fmt: skip
def test_a_setting_that_changes_the_computation_changes_what_is_served(
    family: str, config: dict[str, Any], tmp_path: Path
) -> None:
    assert "logits of" in compared(saved(make(family, **config), tmp_path))


@pytest.mark.parametrize(
    ("make_system", "original"),
    [
        (DeeBert, "BertForSequenceClassification"),
        (partial(Berxit, divide=1), "BertForSequenceClassification"),
        (BerxitDistilBert, "DistilBertForSequenceClassification"),
        (Pabee, "BertModel through the last exit's head"),
        (partial(Pabee, model_type="bert"), "BertModel through the last exit's head"),
        (PabeeAlbert, "AlbertModel through the last exit's head"),
        (ElasticBert, "BertModel through the last exit's head"),
        (partial(ElasticBert, model_type="elasticbert"), "BertModel through the last exit's head"),
        (DeeRoberta, "RobertaModel through the last exit's head"),
    ],
)
def test_checkpoints_with_exits_are_compared_at_full_depth(
    make_system: Callable[[], System], original: str, tmp_path: Path
) -> None:
    assert f"logits of {original} to " in compared(make_system().save(tmp_path))


# With shared layers, under other names, and with a norm behind the last.
@pytest.mark.parametrize("family", ["albert", "bert", "distilbert", "modernbert"])
def test_a_cut_model_says_what_the_cut_original_says(family: str, tmp_path: Path) -> None:
    loaded = load(saved(make(family), tmp_path), layers=2)
    assert (loaded.model.exits, loaded.model.backbone.depth) == ((2,), 2)
    assert "ForSequenceClassification to " in compare(tmp_path, loaded, served_by(loaded))


def test_where_transformers_has_no_such_model_the_reason_is_given(tmp_path: Path) -> None:
    folder = FastBert().save(tmp_path / "theirs")
    loaded = load(folder)
    assert "not compared with transformers 5" in compared(folder)
    loaded.model.save(tmp_path / "ours")
    (tmp_path / "ours" / "tokenizer.json").write_text(loaded.tokenizer)
    assert compared(tmp_path / "ours").endswith("no encoder with FastBERT's norms")


def test_a_text_that_transformers_cannot_compute_is_told(tmp_path: Path) -> None:
    folder = save(make("bert"), tmp_path)
    loaded = load(folder)
    rewrite(folder / "config.json", lambda config: config.update(chunk_size_feed_forward=5))
    said = compare(folder, loaded, served_by(loaded))
    assert "Not compared: BertForSequenceClassification fails on a text (" in said


@pytest.mark.parametrize(
    "stated", [{"attn_implementation": "flash_attention_2"}, {"return_dict": False}], ids=str
)
def test_a_setting_of_the_training_machine_does_not_stop_the_comparison(
    stated: dict[str, Any], tmp_path: Path
) -> None:
    folder = save(make("bert"), tmp_path)
    rewrite(folder / "config.json", lambda config: config.update(stated))
    assert "not compared" not in compared(folder).lower()


def test_weights_that_answer_no_number_are_named_as_the_cause(tmp_path: Path) -> None:
    model = make("bert")
    model.classifier.bias.data[0] = torch.nan
    with pytest.raises(
        UnusableCheckpoint, match=r"of 'no' is no number by BertFor.* itself: its weights"
    ):
        compared(save(model, tmp_path))


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta"])
def test_a_padding_token_that_is_around_every_text_is_refused(family: str, tmp_path: Path) -> None:
    folder = save(make(family, pad_token_id=2), tmp_path)
    with pytest.raises(UnusableCheckpoint, match=r"the padding's id is 2, and '\[CLS\]'"):
        load(folder)


def test_offramp_s_own_models_are_read_whatever_their_padding_is(tmp_path: Path) -> None:
    loaded, folder = load(save(make("roberta"), tmp_path / "theirs")), tmp_path / "ours"
    loaded.model.config.pad_token_id = 2
    loaded.model.save(folder)
    (folder / "tokenizer.json").write_text(loaded.tokenizer)
    assert load(folder), "trained and served with the same positions"
    with pytest.raises(UnusableCheckpoint, match=r"the padding's id is 2, and '\[CLS\]'"):
        compared(folder)


def test_a_tokenizer_that_transformers_cannot_load_is_named(tmp_path: Path) -> None:
    loaded, folder = load(save(make("bert"), tmp_path / "theirs")), tmp_path / "ours"
    loaded.model.save(folder)
    (folder / "tokenizer.json").write_text(loaded.tokenizer)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')
    said = compared(folder)
    assert "logits of BertModel through the last exit's head" in said
    assert "Not compared: AutoTokenizer cannot load it (" in said


def refusal(folder: Path, **served: Any) -> str:
    loaded = load(folder)
    with pytest.raises(UnusableCheckpoint) as caught:
        as_loaded = served_by(loaded)
        compare(folder, loaded, as_loaded._replace(**served))
    return str(caught.value)


def test_the_first_token_that_differs_is_shown(tmp_path: Path) -> None:
    folder = save(make("bert"), tmp_path)
    other = wordpiece((*WORDS[1:], WORDS[0]))
    (tmp_path / "other").mkdir()
    other.save(str(tmp_path / "other" / "tokenizer.json"))
    said = refusal(folder, tokenizer=TextEncoder(tmp_path / "other" / "tokenizer.json", 32))
    assert 'the tokenizer differs from transformers: in "The Quick' in said
    assert "by AutoTokenizer, and " in said


def test_an_added_token_that_only_one_tokenizer_knows_is_found(tmp_path: Path) -> None:
    folder = save(make("bert"), tmp_path)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"] = []
    (tmp_path / "plain.json").write_text(json.dumps(tokenizer))
    said = refusal(folder, tokenizer=TextEncoder(tmp_path / "plain.json", 32))
    assert "in 'see [PAD] here[PAD]and" in said
    assert "is '[PAD]' (id 0) by AutoTokenizer, and '[UNK]' (id 1) as it would be served" in said


def test_token_types_of_pairs_are_compared(tmp_path: Path) -> None:
    folder = save(make("bert"), tmp_path)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast",
                    "model_input_names": ["input_ids", "attention_mask"]})
    )  # fmt: skip
    said = refusal(folder, tokenizer=TextEncoder(folder / "tokenizer.json", 32))
    assert "in 'A Dog runs through the snow. / Un animal" in said
    assert "has the type 0 by AutoTokenizer, and 1 as it would be served" in said


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("wrong", [1.0, float("nan")])
def test_the_first_logit_that_differs_is_shown(kind: str, wrong: float, tmp_path: Path) -> None:
    folder = save(make("bert", kind), tmp_path)
    loaded = load(folder)

    def off(ids: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        logits = loaded.model(ids, torch.ones_like(ids), types)[-1].clone()
        logits[..., 1] += wrong
        return logits

    said = refusal(folder, logits=off)
    place = ", token " if kind == "tokens" else ", the logit of 'perhaps' is "
    assert f'it?"{place}' in said
    assert "the logit of 'perhaps' is " in said
    assert "as it would be served" in said
