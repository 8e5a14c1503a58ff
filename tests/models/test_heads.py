"""Exit heads: the inputs and outputs of each kind."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn import functional

from models.encoders.unbiased_norm import UnbiasedNorm, replace_norms
from models.heads import (
    AttentionHead,
    AttentionHeadConfig,
    ExitHead,
    HeadConfig,
    build_head,
)
from models.multi_exit import ExitConfig

HIDDEN = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])


def head(**config: object) -> ExitHead:
    torch.manual_seed(0)
    return ExitHead(8, 3, HeadConfig(pooling="first", **config)).eval()


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu", "none"])
def test_the_dense_layer_has_its_activation(activation: str) -> None:
    functions = {"tanh": torch.tanh, "relu": functional.relu, "gelu": functional.gelu}
    found = head(activation=activation)
    dense = found.pooler(HIDDEN[:, 0])
    expected = found.classifier(functions.get(activation, nn.Identity())(dense))
    assert torch.equal(found(HIDDEN, MASK), expected)


@pytest.mark.parametrize("pooling", ["first", "tokens"])
def test_without_a_dense_layer_the_pooled_tokens_are_classified(pooling: str) -> None:
    torch.manual_seed(0)
    found = ExitHead(8, 3, HeadConfig(pooling=pooling, pooler=False)).eval()
    pooled = HIDDEN[:, 0] if pooling == "first" else HIDDEN
    assert torch.equal(found(HIDDEN, MASK), found.classifier(pooled))
    assert {name for name, _ in found.named_parameters()} == {
        "classifier.weight",
        "classifier.bias",
    }


def test_modernberts_dense_layer_has_a_norm_and_no_bias() -> None:
    found = head(activation="gelu", bias=False, norm=1e-5, norm_bias=False)
    assert found.pooler.bias is None
    assert found.norm.bias is None
    normal = functional.layer_norm(functional.gelu(found.pooler(HIDDEN[:, 0])), (8,), eps=1e-5)
    torch.testing.assert_close(found(HIDDEN, MASK), found.classifier(normal))


@pytest.mark.parametrize("source", ["pooler", "pooling"])
def test_the_predicted_error_is_read_where_it_was_learned(source: str) -> None:
    found = head(activation="relu", uncertainty=source)
    first = HIDDEN[:, 0]
    read = functional.relu(found.pooler(first)) if source == "pooler" else first
    said = found.output(HIDDEN, MASK)
    assert torch.equal(said.uncertainty, torch.sigmoid(found.uncertainty(read))[:, 0])
    assert torch.equal(said.logits, found(HIDDEN, MASK))
    assert head().output(HIDDEN, MASK).uncertainty is None


def test_a_head_that_attends_does_not_see_padding() -> None:
    torch.manual_seed(0)
    found = build_head(8, 3, AttentionHeadConfig(kind="attention", width=4)).eval()
    assert isinstance(found, AttentionHead)
    together, alone = found(HIDDEN, MASK), found(HIDDEN[1:, :2], MASK[1:, :2])
    torch.testing.assert_close(together[1:], alone, atol=1e-6, rtol=0)
    changed = HIDDEN.clone()
    changed[0, 3] += 1
    assert not torch.allclose(found(changed, MASK)[0], together[0]), "it does see other tokens"
    assert torch.equal(found(changed, MASK)[1], together[1])


def test_heads_of_all_kinds_are_stored_and_read() -> None:
    described = ExitConfig(exits=(1,), head=AttentionHeadConfig(kind="attention", width=16))
    assert ExitConfig.model_validate_json(described.model_dump_json()) == described
    of_two_kinds = ExitConfig(exits=(1, 2), last_head=HeadConfig(pooling="first"))
    assert [head.pooling for head in of_two_kinds.heads] == ["mean", "first"]
    assert ExitConfig.model_validate_json(of_two_kinds.model_dump_json()) == of_two_kinds
    with pytest.raises(ValidationError, match="whether they predict their error"):
        ExitConfig(exits=(1, 2), last_head=HeadConfig(uncertainty="pooler"))
    with pytest.raises(ValidationError, match="conv"):
        ExitConfig.model_validate({"exits": [1], "head": {"kind": "conv"}})
    # Old folders name no kind.
    old = {"exits": [1, 2], "head": {"dropout": 0.1, "pooler": True, "pooling": "mean"}}
    found = ExitConfig.model_validate(old)
    assert found.head == HeadConfig()
    assert found == ExitConfig.model_validate_json(found.model_dump_json())


@pytest.mark.parametrize(("task", "pooling"), [("token", "mean"), ("single_label", "tokens")])
def test_labelling_tokens_and_not_pooling_need_each_other(task: str, pooling: str) -> None:
    with pytest.raises(ValidationError, match="need each other"):
        ExitConfig(exits=(1,), task=task, head=HeadConfig(pooling=pooling))


def test_the_unbiased_norm_is_uers() -> None:
    norm = UnbiasedNorm(8)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    std, mean = torch.std_mean(HIDDEN, dim=-1, keepdim=True)
    expected = norm.weight * (HIDDEN - mean) / (std + 1e-6) + norm.bias
    torch.testing.assert_close(norm(HIDDEN), expected)
    assert not torch.allclose(norm(HIDDEN), functional.layer_norm(HIDDEN, (8,)))


def test_all_norms_of_an_encoder_are_replaced() -> None:
    encoder = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)))
    replace_norms(encoder)
    assert [type(module) for module in encoder[1]] == [UnbiasedNorm, nn.Linear]
