"""Gradient equilibrium: same logits, and each layer's gradient a mean of those of its exits."""

from collections.abc import Callable

import pytest
import torch

from models.data.batches import collate
from models.data.encoding import EncodedRow
from models.multi_exit import MultiExitModel
from models.training.gradient_equilibrium import groups_of, run_in_equilibrium


@pytest.mark.parametrize("exits", [(1, 2, 3), *groups_of((1, 2, 3))])
def test_each_layer_gets_the_mean_of_the_gradients_of_the_exits_above_it(
    make_model: Callable[..., MultiExitModel],
    make_rows: Callable[..., list[EncodedRow]],
    exits: tuple[int, ...],
) -> None:
    model = make_model()
    batch = collate(make_rows(4), pad_id=0)
    every = model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    plain = [every[layer - 1] for layer in exits]
    balanced = [output.logits for output in run_in_equilibrium(model, batch, exits)]
    torch.testing.assert_close(balanced, plain, rtol=0, atol=0)
    for layer in range(3):
        name = f"encoder.encoder.layer.{layer}.output.dense.weight"
        weight = dict(model.named_parameters())[name]
        each = [
            torch.autograd.grad(z.square().sum(), weight, retain_graph=True)[0]
            for z, stop in zip(plain, exits, strict=True)
            if stop > layer
        ]
        total = sum(z.square().sum() for z in balanced)
        (found,) = torch.autograd.grad(total, weight, retain_graph=True)
        torch.testing.assert_close(found, sum(each) / len(each))
    # Heads learn at their full rate.
    for stop, one, other in zip(exits, plain, balanced, strict=True):
        head = model.head(stop - 1)
        bias = head.classifier.bias
        torch.testing.assert_close(
            torch.autograd.grad(other.square().sum(), bias, retain_graph=True),
            torch.autograd.grad(one.square().sum(), bias, retain_graph=True),
        )
