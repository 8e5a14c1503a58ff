"""What rows cost by where they leave, and operations held against formulas worked out by hand."""

import numpy as np
import pytest
from transformers import BertConfig

from models.encoders.families import build_encoder
from models.multi_exit import ExitConfig, HeadConfig, MultiExitModel
from models.quality.costs import (
    MFLOPS,
    MFLOPS_LINEAR,
    RowCost,
    TimeCost,
    flops_by_exit,
    module_flops,
    num_parameters,
)
from serve.classifier.exit_costs import ExitCosts
from serve.rules import EntropyRule, LayerRule, PatienceRule, compile_rule
from tests.support.families import CONFIGS, tiny_encoder
from tests.support.tiny import tiny_model
from tests.support.traits import two_labels

TRAITS = two_labels((1, 2, 3))
FROM_FIRST = compile_rule(EntropyRule(threshold=0.1), TRAITS)


def test_a_row_pays_for_its_layers_and_for_every_exit_that_it_was_asked_at() -> None:
    run = np.array([[10.0, 20.0], [20.0, 40.0], [30.0, 60.0]])
    cost = RowCost(run, np.array([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]))
    from_second = compile_rule(EntropyRule(threshold=0.1, min_layer=2), TRAITS)
    at_third = compile_rule(LayerRule(layer=3), TRAITS)
    assert cost.of(np.array([2, 1]), FROM_FIRST).tolist() == [37, 43]
    assert cost.of(np.array([2, 1]), from_second).tolist() == [36, 42]
    assert cost.of(np.array([2, 2]), at_third).tolist() == [34, 64]


def test_milliseconds_are_those_that_the_server_expects() -> None:
    costs = ExitCosts((0.001, 0.002, 0.004), visit_s=0.0001, slow_visit_s=0.0005)
    cost, exits = TimeCost(costs), np.array([0, 2, 2])
    np.testing.assert_allclose(cost.of(exits, FROM_FIRST), [1.1, 7.3, 7.3])
    # Rules that remember earlier exits are asked the slow way.
    patient = compile_rule(PatienceRule(patience=1), TRAITS)
    np.testing.assert_allclose(cost.of(exits, patient), [1.5, 8.5, 8.5])


WIDTH, INNER, HEADS, LABELS = 32, 64, 4, 3


def test_a_layer_of_bert_counts_as_papers_count_it() -> None:
    n = 21
    costs = flops_by_exit(tiny_model(), np.array([n]))
    linear = 4 * n * WIDTH**2 + 2 * n * WIDTH * INNER
    # ELUE's counter: attention, two a softmax element, two an element of each layer norm.
    whole = linear + 2 * n**2 * WIDTH + 2 * HEADS * n**2 + 2 * 2 * n * WIDTH
    after = np.diff(costs[MFLOPS].run[:, 0]), np.diff(costs[MFLOPS_LINEAR].run[:, 0])
    np.testing.assert_allclose(after[0], 2e-6 * whole)
    np.testing.assert_allclose(after[1], 2e-6 * linear)
    # A head: the mean over the tokens as a product, a dense layer, a classifier.
    head = WIDTH**2 + WIDTH * LABELS
    np.testing.assert_allclose(costs[MFLOPS_LINEAR].asked, 2e-6 * head)
    np.testing.assert_allclose(costs[MFLOPS].asked, 2e-6 * (head + n * WIDTH))
    # The embeddings' layer norm comes before the first layer.
    np.testing.assert_allclose(costs[MFLOPS].run[0], 2e-6 * (whole + 2 * n * WIDTH))


def test_bert_base_of_128_tokens_has_the_published_figure() -> None:
    config = BertConfig(num_hidden_layers=2, num_labels=2)
    model = MultiExitModel(build_encoder(config), ExitConfig(exits=(1, 2))).eval()
    layer = np.diff(flops_by_exit(model, np.array([128]))[MFLOPS].run[:, 0])
    assert layer == pytest.approx(1863.8, abs=0.05)


@pytest.mark.parametrize("family", CONFIGS)
def test_three_lengths_tell_the_operations_of_every_other_length(family: str) -> None:
    head = HeadConfig(pooling="first")
    model = MultiExitModel(tiny_encoder(CONFIGS[family]), ExitConfig(exits=(1, 3), head=head))
    at_once = flops_by_exit(model.eval(), np.array([5, 17, 23, 40]))
    for place, length in enumerate((5, 17, 23, 40)):
        alone = flops_by_exit(model, np.array([length]))
        for unit in (MFLOPS, MFLOPS_LINEAR):
            np.testing.assert_allclose(at_once[unit].run[:, place], alone[unit].run[:, 0])


def test_exits_that_are_not_in_use_are_neither_counted_nor_asked() -> None:
    model = tiny_model()
    every, some = (flops_by_exit(model, np.array([9, 9]), e)[MFLOPS] for e in (None, (2, 4)))
    assert np.array_equal(some.run, every.run[[1, 3]])
    assert np.array_equal(some.asked, every.asked[[1, 3]])


def test_shared_layers_are_learned_once() -> None:
    assert num_parameters(tiny_model(family="albert")) < num_parameters(tiny_model()) / 2


def test_modules_add_up_to_what_the_whole_model_takes() -> None:
    model = tiny_model()
    modules = module_flops(model, [4, 9, 20])
    assert modules.names[:4] == ("emb", "layer_1", "exit_1", "layer_2")
    lengths = np.array([7, 30])
    whole = flops_by_exit(model, lengths)[MFLOPS]
    np.testing.assert_allclose(
        modules.of(lengths)[0].sum(axis=0), whole.run[-1] + whole.asked.sum(axis=0)
    )
