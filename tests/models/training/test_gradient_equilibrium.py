"""Gradient equilibrium: same logits, and each layer's gradient a mean of those of its exits."""

from collections.abc import Callable

import torch

from models.data.batches import collate
from models.data.encoding import EncodedRow
from models.multi_exit import MultiExitModel
from models.training.gradient_equilibrium import run_in_equilibrium, scaled_gradient


def test_scaled_gradient_changes_the_way_back_only() -> None:
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    out = scaled_gradient(values, 0.25)
    assert out.equal(values)
    (gradient,) = torch.autograd.grad(out.sum(), values)
    assert gradient.tolist() == [0.25, 0.25]


def test_each_layer_gets_the_mean_of_the_gradients_of_the_exits_above_it(
    make_model: Callable[..., MultiExitModel], make_rows: Callable[..., list[EncodedRow]]
) -> None:
    model = make_model()
    batch = collate(make_rows(4), pad_id=0)
    plain = model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    balanced = [output.logits for output in run_in_equilibrium(model, batch)]
    torch.testing.assert_close(balanced, plain, rtol=0, atol=0)
    for layer in range(3):
        name = f"encoder.encoder.layer.{layer}.output.dense.weight"
        weight = dict(model.named_parameters())[name]
        each = [
            torch.autograd.grad(z.square().sum(), weight, retain_graph=True)[0]
            for z in plain[layer:]
        ]
        total = sum(z.square().sum() for z in balanced)
        (found,) = torch.autograd.grad(total, weight, retain_graph=True)
        torch.testing.assert_close(found, sum(each) / len(each))
    # Heads learn at their full rate.
    for head, one, other in zip(model.heads, plain, balanced, strict=True):
        bias = head.classifier.bias
        torch.testing.assert_close(
            torch.autograd.grad(other.square().sum(), bias, retain_graph=True),
            torch.autograd.grad(one.square().sum(), bias, retain_graph=True),
        )
