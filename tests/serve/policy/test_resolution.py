import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.errors import TargetOutOfReach
from serve.policy.ladder import Certificate, Loss
from serve.policy.limits import Limits
from serve.policy.resolution import Resolution, ServedRung, nearest, resolve
from serve.policy.target import Target
from serve.rules import EntropyRule, NeverRule
from tests.serve.support.ladders import BOLD, NEVER, SAFE, STRICT, WILD, served


def resolved(**bounds: Any) -> Resolution:
    return resolve(Target(**bounds), served().rungs(Limits()))


@pytest.mark.parametrize(
    ("bounds", "rule"),
    [
        ({"max_disagreement": 0.004}, NEVER),
        ({"max_disagreement": 0.005}, STRICT),
        ({"max_disagreement": 0.49, "certified": False}, WILD),
        ({"max_disagreement": 0.019, "certified": False}, SAFE),
        ({"max_loss": 0.005}, SAFE),
        ({"max_loss": 0.02, "max_disagreement": 0.01}, SAFE),
        ({"speedup": 1.5}, BOLD),
        ({"speedup": 1.5, "certified": True}, BOLD),
        ({"max_layers": 3.6}, STRICT),
        ({"max_ms": 2, "max_layers": 1.5}, WILD),
        ({"max_disagreement": 0.03, "max_layers": 3}, BOLD),
    ],
)
def test_each_target_has_its_rung(bounds: dict[str, Any], rule: dict[str, Any]) -> None:
    assert resolved(**bounds).report["exit_rule"] == rule


def test_of_speed_alone_the_safest_rung_within_the_noise_of_the_measurement_is_taken() -> None:
    def rule(speedup: float, noise: float) -> dict[str, Any]:
        rungs = served(noise=noise).rungs(Limits())
        return resolve(Target(speedup=speedup), rungs).report["exit_rule"]

    # The made-up rungs are 1, 1.11, 1.43, 2 and 2.96 times as fast.
    assert (rule(1.45, 0), rule(1.45, 0.03)) == (BOLD, SAFE)
    assert (rule(2.1, 0), rule(2.1, 0.06), rule(2.1, 0.04)) == (WILD, BOLD, WILD)
    assert rule(1.02, 0.1) == STRICT, "full depth is not faster than itself"


def test_certificate_is_of_the_loss_that_was_asked_for() -> None:
    assert resolved(max_loss=0.005).certificate.loss == "metric"
    both = resolved(max_disagreement=0.01, max_loss=0.005).certificate
    assert (both.loss, both.epsilon, both.n) == ("disagreement", 0.01, 4000)
    assert resolved(speedup=1.2).certificate.loss == "disagreement"
    assert resolved(max_disagreement=0).certificate is None
    assert resolved(speedup=2.5).certificate is None


@pytest.mark.parametrize(
    ("bounds", "nearest"),
    [
        ({"speedup": 3}, "speedup 2.96, 1.35 layers, 1.35 ms"),
        ({"max_ms": 1.5, "certified": True}, "speedup 2, 2 layers, 2 ms"),
        ({"max_disagreement": 0.01, "speedup": 2}, "speedup 1.42, 2.8 layers, 2.8 ms"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_nearest(
    bounds: dict[str, Any], nearest: str
) -> None:
    with pytest.raises(TargetOutOfReach, match=nearest):
        resolved(**bounds)


def test_limits_that_forbid_full_depth_can_leave_nothing_that_is_sure() -> None:
    rungs = served().rungs(Limits(max_layer=3))
    assert not any(rung.full_depth or rung.certificates for rung in rungs)
    with pytest.raises(TargetOutOfReach):
        resolve(Target(max_disagreement=0.01), rungs)
    assert resolve(Target(max_layers=2), rungs).rung.rule == EntropyRule(threshold=0.5, max_layer=3)


SHARE = st.floats(0, 1)
GOAL = st.floats(0, 0.49)
BOUNDS = st.fixed_dictionaries(
    {},
    optional={
        "max_disagreement": GOAL,
        "max_loss": GOAL,
        "speedup": st.floats(1, 12),
        "max_layers": st.floats(1, 12),
        "max_ms": st.floats(0.1, 20),
    },
).filter(bool)


@st.composite
def rungs_of_any_kind(draw: st.DrawFn) -> list[ServedRung]:
    """Draw full depth or not, then rungs of ever fewer layers and odd times and certificates."""
    num = draw(st.integers(1, 6))
    layers = sorted(draw(st.lists(st.floats(1, 12), min_size=num, max_size=num)), reverse=True)
    certificate = st.builds(
        Certificate,
        epsilon=st.floats(0.001, 0.9),
        delta=st.just(0.05),
        n=st.just(10),
        observed=SHARE,
        loss=st.sampled_from(["disagreement", "metric"]),
    )
    own = st.lists(certificate, max_size=2, unique_by=lambda c: c.loss).map(tuple)
    full_depth = draw(st.booleans())
    return [
        ServedRung(
            rule=EntropyRule(threshold=place) if place else NeverRule(),
            full_depth=full_depth and not place,
            expected_layers=mean,
            expected_ms=(ms := draw(st.floats(0.5, 20))),
            speedup=20 / ms,
            disagreement=draw(st.none() | SHARE),
            certificates=draw(own),
        )
        for place, mean in enumerate(layers)
    ]


def keeps(rung: ServedRung, target: Target) -> bool:
    """Tell by the definition whether a rung keeps every bound of a target."""

    def loses_at_most(loss: Loss, most: float | None) -> bool:
        if most is None or rung.full_depth:
            return True
        found = rung.certificate(loss)
        if target.needs_certificate:
            return found is not None and found.epsilon <= most
        measured = rung.disagreement if loss == "disagreement" else found and found.observed
        return measured is not None and measured <= most

    slack = 1 + 1e-6
    return (
        (rung.full_depth or bool(rung.certificates) or not target.needs_certificate)
        and loses_at_most("disagreement", target.max_disagreement)
        and loses_at_most("metric", target.max_loss)
        and rung.speedup * slack >= (target.speedup or 0)
        and rung.expected_layers <= (target.max_layers or math.inf) * slack
        and rung.expected_ms <= (target.max_ms or math.inf) * slack
    )


@given(rungs_of_any_kind(), BOUNDS, st.none() | st.booleans())
def test_whatever_is_asked_the_rung_keeps_every_bound_or_there_is_none(
    rungs: list[ServedRung], bounds: dict[str, float], certified: bool | None
) -> None:
    target = Target(**bounds, certified=certified)
    fitting = [rung for rung in rungs if keeps(rung, target)]
    if not fitting:
        with pytest.raises(TargetOutOfReach):
            resolve(target, rungs)
        return
    rung = resolve(target, rungs).rung
    assert rung in fitting
    if target.losses:
        assert rung.expected_layers == min(each.expected_layers for each in fitting)
    else:
        assert rung == fitting[0]


@given(rungs_of_any_kind(), BOUNDS)
def test_figures_of_the_nearest_can_be_asked_for(
    rungs: list[ServedRung], bounds: dict[str, float]
) -> None:
    target = Target(**bounds, certified=False)
    problem = nearest(target, rungs).problem
    if problem and "limits allow" not in problem:
        _, layers, ms = problem.rpartition(": ")[2].split(", ")
        figures = {"max_layers": float(layers.split()[0]), "max_ms": float(ms.split()[0])}
        assert resolve(target.model_copy(update={"speedup": None, **figures}), rungs)
