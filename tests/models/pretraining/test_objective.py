"""The loss of all exits against a loop over exits, words and pairs."""

import torch
from torch.nn import functional

from models.data.alignment import IGNORED
from models.pretraining.model import Found, sum_of_exits
from models.training.gradient_equilibrium import groups_of


def test_the_loss_is_the_sum_over_exits_of_the_mean_of_words_and_the_mean_of_pairs() -> None:
    torch.manual_seed(0)
    targets, order = torch.tensor([5, 1, 7]), torch.tensor([1, IGNORED, 0, IGNORED])
    found = [Found(torch.randn(3, 9), targets, torch.randn(4, 2)) for _ in range(4)]
    expected = torch.zeros(())
    for exit_ in found:
        for logits, target in zip(exit_.words, targets, strict=True):
            expected = expected - logits.log_softmax(0)[target] / 3
        assert exit_.order is not None
        for row in (0, 2):
            expected = expected - exit_.order[row].log_softmax(0)[order[row]] / 2
    torch.testing.assert_close(sum_of_exits(found, order), expected)
    words_only = [each._replace(order=None) for each in found]
    alone = sum(functional.cross_entropy(each.words, targets) for each in found)
    torch.testing.assert_close(sum_of_exits(words_only, order), alone)


def test_a_batch_without_hidden_words_or_pairs_has_loss_0() -> None:
    nothing = Found(torch.zeros(0, 9), torch.zeros(0, dtype=torch.long), torch.randn(2, 2))
    assert sum_of_exits([nothing], torch.tensor([IGNORED, IGNORED])) == 0


def test_groups_are_those_of_elasticbert() -> None:
    every = tuple(range(1, 13))
    assert groups_of(every) == ((1, 3, 5, 7, 9, 11, 12), (2, 4, 6, 8, 10, 12))
    assert groups_of((2, 4, 6)) == ((2, 6), (4, 6))
    assert groups_of((3, 6)) == ((3, 6), (6,))
    assert groups_of((6,)) == ((6,),)
