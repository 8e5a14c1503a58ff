"""Every family's word head, held against transformers' own masked language model."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM

from models.data.batches import Batch
from models.encoders.families import FAMILIES
from models.pretraining.language_model import WORD_HEADS, read_language_model
from models.pretraining.masking import Masking
from models.pretraining.model import PretrainingModel
from tests.support.families import CONFIGS, FORMS, VOCABULARY, with_depth
from tests.support.json_files import rewrite

ALL = CONFIGS | {name: FORMS[name] for name in ("electra as wide as its layers",)}
MASKING = Masking(mask_id=4, special_ids=(0, 1, 2, 3, 4), num_tokens=VOCABULARY, share=0.3)


def test_every_family_has_a_word_head() -> None:
    assert WORD_HEADS.keys() == FAMILIES.keys()


def drawn(name: str) -> torch.nn.Module:
    """Return transformers' class with biases and scales that count."""
    torch.manual_seed(0)
    config = type(ALL[name]).from_dict(ALL[name].to_dict())
    model = AutoModelForMaskedLM.from_config(config).eval()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim == 1:
                weights.add_(torch.randn_like(weights), alpha=0.3)
    return model


@pytest.mark.parametrize("name", ALL)
def test_the_last_exit_names_words_as_transformers_does_before_and_after_saving(
    name: str, tmp_path: Path
) -> None:
    theirs = drawn(name)
    theirs.save_pretrained(tmp_path / "in")
    ours = read_language_model(tmp_path / "in")
    assert ours.has_own_head
    model = PretrainingModel(ours.model, (1, 3), ordered=False).eval()
    ids = torch.randint(5, VOCABULARY, (4, 9), generator=torch.Generator().manual_seed(2))
    batch = Batch(ids, torch.ones_like(ids), torch.zeros_like(ids), torch.zeros(4))
    masked = MASKING(batch, torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = theirs(input_ids=masked.batch.input_ids).logits[masked.chosen]
        found = model(masked)[-1]
    torch.testing.assert_close(found.words, expected, atol=1e-4, rtol=1e-4)
    assert torch.equal(found.targets, ids[masked.chosen])
    ours.model.save_pretrained(tmp_path / "out")
    again = AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        kept = again(input_ids=masked.batch.input_ids).logits[masked.chosen]
    torch.testing.assert_close(kept, expected, atol=1e-4, rtol=1e-4)


def test_a_bare_encoder_gets_a_new_head_whose_last_matrix_is_its_embeddings(tmp_path: Path) -> None:
    config = type(CONFIGS["bert"]).from_dict(CONFIGS["bert"].to_dict())
    AutoModel.from_config(config).save_pretrained(tmp_path)
    found = read_language_model(tmp_path)
    assert not found.has_own_head
    tied = found.model.get_output_embeddings().weight
    assert tied is found.model.get_input_embeddings().weight


def test_weights_are_not_rounded_to_the_type_that_the_folder_names(tmp_path: Path) -> None:
    AutoModelForMaskedLM.from_config(with_depth(CONFIGS["bert"], 3)).save_pretrained(tmp_path)
    expected = AutoModelForMaskedLM.from_pretrained(tmp_path, dtype=torch.float32).state_dict()
    rewrite(tmp_path / "config.json", lambda config: config.update(dtype="bfloat16"))
    for name, found in read_language_model(tmp_path).model.state_dict().items():
        assert torch.equal(found, expected[name]), name


def test_an_early_exit_reads_its_own_layer_for_words_and_for_order(tmp_path: Path) -> None:
    theirs = drawn("bert")
    theirs.save_pretrained(tmp_path)
    model = PretrainingModel(read_language_model(tmp_path).model, (1, 2, 3), ordered=True).eval()
    ids = torch.randint(5, VOCABULARY, (4, 9), generator=torch.Generator().manual_seed(2))
    masked = MASKING(Batch(ids, torch.ones_like(ids), ids % 2, torch.zeros(4)))
    with torch.no_grad():
        states = theirs(
            input_ids=masked.batch.input_ids, token_type_ids=ids % 2, output_hidden_states=True
        ).hidden_states
        found = model(masked, (2, 3))
        pooler, classifier = model.heads[1].pooler, model.heads[1].classifier
        order = torch.tanh(states[2][:, 0] @ pooler.weight.T + pooler.bias)
        torch.testing.assert_close(found[0].words, theirs.cls(states[2])[masked.chosen])
        torch.testing.assert_close(found[0].order, order @ classifier.weight.T + classifier.bias)
