from dataclasses import replace

import pytest

from serve.bundle.loader import Bundle
from serve.classifier.exit_costs import ExitCosts, measure_exit_costs
from serve.classifier.variant import model_shape
from serve.rules import EntropyRule, ExitRule, LayerRule, NeverRule, PatienceRule, compile_rule
from serve.runtime.cpu_runner import CpuRunner
from tests.support.traits import two_labels

COSTS = ExitCosts((1.0, 2.0, 3.0), visit_s=0.1, slow_visit_s=0.5)


@pytest.mark.parametrize(
    ("rule", "seconds"),
    [
        (EntropyRule(threshold=0.1), [1.1, 3.2, 6.3]),
        (EntropyRule(threshold=0.1, min_layer=4), [1.1, 3.1, 6.2]),
        (LayerRule(layer=4), [1.1, 3.1, 6.2]),
        (NeverRule(), [1.1, 3.1, 6.1]),
        (PatienceRule(patience=1), [1.5, 4.0, 7.5]),
    ],
)
def test_a_text_pays_for_its_layers_and_for_the_exits_that_its_rule_asks(
    rule: ExitRule, seconds: list[float]
) -> None:
    compiled = compile_rule(rule, two_labels((2, 4, 6)))
    assert COSTS.until_exits_s(compiled).tolist() == pytest.approx(seconds)


def test_a_text_pays_for_the_table_if_its_rule_asks_it() -> None:
    traits = replace(two_labels((2, 4, 6)), table_temperature=1.0)
    costs = replace(COSTS, table_s=0.01)
    asks, asks_not = (compile_rule(NeverRule(table=table), traits) for table in (0.9, None))
    assert costs.until_exits_s(asks).tolist() == pytest.approx([0.01, 1.11, 3.11, 6.11])
    assert costs.until_exits_s(asks_not).tolist() == pytest.approx([0.01, 1.1, 3.1, 6.1])


def test_what_is_measured_says_how_far_it_may_be_off(bundle: Bundle) -> None:
    costs = measure_exit_costs(CpuRunner(bundle, "fp32", 1), model_shape(bundle.manifest), 8)
    assert 0 < costs.noise <= 0.1
