import pytest

from serve.errors import InvalidRule
from serve.policy.ladder import Ladder
from serve.policy.limits import Limits
from serve.policy.served_ladder import ServedLadder
from serve.rules import EntropyRule, LayerRule, NeverRule
from serve.rules.traits import Traits
from tests.serve.support.ladders import TRAITS, ladder, rung, served


def test_without_certificates_a_model_can_run_in_full_or_leave_at_each_exit() -> None:
    rungs = served(certified=False, traits=Traits((2, 4, 6), ("no", "yes"))).rungs(Limits())
    assert [r.rule for r in rungs] == [NeverRule(), LayerRule(layer=4), LayerRule(layer=2)]
    assert [r.expected_layers for r in rungs] == [6, 4, 2]
    assert [r.speedup for r in rungs] == pytest.approx([1, 1.5, 3])
    assert [r.full_depth for r in rungs] == [True, False, False]
    assert not any(r.certificates for r in rungs)


def test_rungs_have_the_mean_layers_and_times_of_the_texts_that_certified_them() -> None:
    rungs = served(ms_per_layer=2.0).rungs(Limits())
    assert [r.expected_layers for r in rungs] == pytest.approx([4, 3.6, 2.8, 2, 1.35])
    assert [r.expected_ms for r in rungs] == pytest.approx([8, 7.2, 5.6, 4, 2.7])
    assert [len(r.certificates) for r in rungs] == [0, 1, 2, 2, 0]


def test_a_rule_that_the_limits_change_has_no_certificate() -> None:
    bounded = served().rungs(Limits(min_layer=3))
    assert [r.rule for r in bounded[:2]] == [
        NeverRule(min_layer=3),
        EntropyRule(threshold=0.05, min_layer=3),
    ]
    assert [r.expected_layers for r in bounded] == pytest.approx([4, 3.7, 3.3, 3.1, 3.05])
    assert [r.full_depth for r in bounded] == [True, False, False, False, False]
    assert not any(r.certificates or r.disagreement for r in bounded)
    cut = served().rungs(Limits(max_layer=2))
    assert [r.expected_layers for r in cut] == pytest.approx([2, 2, 1.9, 1.6, 1.2])
    assert not any(r.full_depth or r.certificates for r in cut)


def test_limits_that_change_nothing_leave_the_certificates() -> None:
    exits = Traits((2, 3, 4), TRAITS.labels)
    document = ladder(
        exits=exits.exits,
        temperatures=[1.0] * 3,
        rungs=[
            rung({"rule": "never"}, (0, 0, 1), 0),
            ladder()["rungs"][2] | {"exit_shares": (0.5, 0.3, 0.2)},
        ],
    )
    known = ServedLadder(exits, (1.0,) * 3, lambda rule: [2, 3, 4], Ladder(**document))
    for limits in (Limits(min_layer=2), Limits(max_layer=4), Limits(overrides="none")):
        assert [len(r.certificates) for r in known.rungs(limits)] == [0, 2]


def test_a_rung_that_the_limits_exclude_is_left_out() -> None:
    plain = served(certified=False)
    assert [r.expected_layers for r in plain.rungs(Limits(min_layer=2, max_layer=3))] == [3, 3, 2]


LEARNED = rung({"rule": "learned", "threshold": 0.1}, (0.5, 0, 0, 0.5), 0)


def test_a_ladder_for_another_model_is_refused() -> None:
    alien = Ladder(**ladder(rungs=[rung({"rule": "never"}, (0, 0, 0, 1), 0), LEARNED]))
    with pytest.raises(InvalidRule):
        ServedLadder(TRAITS, (1.0,) * 4, lambda rule: [1, 2, 3, 4], alien)
