"""From a target to a rung: which rule is used for what a client or an operator wants.

Bookkeeping alone. A target that limits what answers may lose gets the rung with the fewest layers
that keeps all of its bounds; the choice is the same in every replica. A target that is about speed
alone gets the safest rung that is fast enough.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from serve.errors import TargetOutOfReach
from serve.policy.ladder import Certificate, Loss
from serve.policy.target import Target
from serve.rules import ExitRule

# A figure that a client has read, and sends back rounded to seven digits, is met.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class ServedRung:
    """A rung as this server runs it under its policy's limits.

    Attributes:
        rule: within the limits.
        full_depth: whether every text runs all layers, so that nothing can be lost.
        expected_layers: mean per text.
        expected_ms: mean from a text's first layer to its answer, of texts that are alone.
        speedup: full depth's time over `expected_ms`.
        disagreement: share of the certifying texts with another answer than full depth's; None
            where that was not measured with just this rule.
        certificates: at most one per loss.
    """

    rule: ExitRule
    full_depth: bool
    expected_layers: float
    expected_ms: float
    speedup: float
    disagreement: float | None = None
    certificates: tuple[Certificate, ...] = ()

    def certificate(self, loss: Loss) -> Certificate | None:
        """Return the certificate of a loss, if the rung has one."""
        return next((c for c in self.certificates if c.loss == loss), None)


@dataclass(frozen=True)
class Resolution:
    """What a target has become.

    Attributes:
        rung: whose rule is used.
        certificate: of what was asked for; None at full depth, and where nothing is certified.
        problem: why the rung is not what the target wants, only the nearest; None if it is.
    """

    rung: ServedRung
    certificate: Certificate | None
    problem: str | None = None

    @cached_property
    def report(self) -> dict[str, Any]:
        """JSON data for answers to requests."""
        return {
            "exit_rule": self.rung.rule.model_dump(mode="json", exclude_none=True),
            "expected_layers": self.rung.expected_layers,
            "certificate": self.certificate and self.certificate.model_dump(mode="json"),
        }

    @cached_property
    def texts(self) -> dict[str, str]:
        """The fields of `report` as JSON, for answers that have room for texts only."""
        return {
            name: json.dumps(value, separators=(",", ":")) for name, value in self.report.items()
        }


def resolve(target: Target, rungs: Sequence[ServedRung]) -> Resolution:
    """Return the rung for a target, of one or more from safe to fast.

    Raises:
        TargetOutOfReach: no rung keeps all bounds; the message names the nearest.
    """
    found = nearest(target, rungs)
    if found.problem is not None:
        raise TargetOutOfReach(found.problem)
    return found


def nearest(target: Target, rungs: Sequence[ServedRung]) -> Resolution:
    """Return the rung for a target, or the nearest one with the problem; see `resolve`."""
    safe = [rung for rung in rungs if _safe_enough(rung, target)]
    fitting = [rung for rung in safe if _fast_enough(rung, target)]
    if fitting:
        rung = _fastest(fitting) if target.limits_loss else fitting[0]
        return Resolution(rung, _certificate(rung, target))
    rung = _fastest(safe) if safe else rungs[0]
    return Resolution(rung, _certificate(rung, target), _problem(target, rung, bool(safe)))


def _bounds(target: Target) -> list[tuple[Loss, float]]:
    """Return the losses that a target limits."""
    wanted: tuple[tuple[Loss, float | None], ...] = (
        ("disagreement", target.max_disagreement),
        ("metric", target.max_loss),
    )
    return [(loss, most) for loss, most in wanted if most is not None]


def _safe_enough(rung: ServedRung, target: Target) -> bool:
    if rung.full_depth:
        return True
    bounds = _bounds(target)
    if not target.needs_certificate:
        lost = [(_measured(rung, loss), most) for loss, most in bounds]
        return all(measured is not None and measured <= most for measured, most in lost)
    if not bounds:
        return bool(rung.certificates)
    certified = [(rung.certificate(loss), most) for loss, most in bounds]
    return all(own is not None and own.epsilon <= most for own, most in certified)


def _measured(rung: ServedRung, loss: Loss) -> float | None:
    if loss == "disagreement":
        return rung.disagreement
    certificate = rung.certificate(loss)
    return certificate.observed if certificate else None


def _fast_enough(rung: ServedRung, target: Target) -> bool:
    most = 1 + _ROUNDING
    return (
        (target.speedup is None or target.speedup <= rung.speedup * most)
        and (target.max_layers is None or rung.expected_layers <= target.max_layers * most)
        and (target.max_ms is None or rung.expected_ms <= target.max_ms * most)
    )


def _fastest(rungs: Sequence[ServedRung]) -> ServedRung:
    """Return the rung with the fewest layers; of several the safest.

    Layers and not milliseconds, which each replica measures for itself.
    """
    return min(rungs, key=lambda rung: rung.expected_layers)


def _certificate(rung: ServedRung, target: Target) -> Certificate | None:
    """Return the certificate of the loss that the target limits; of speed, any."""
    bounds = _bounds(target)
    if bounds:
        return rung.certificate(bounds[0][0])
    return next(iter(rung.certificates), None)


def _problem(target: Target, rung: ServedRung, safe: bool) -> str:
    """Return a sentence that names a rung which can be had, in figures that can be asked for."""
    wanted = target.model_dump(exclude_none=True)
    listed = ", ".join(f"{name} {str(bound).lower()}" for name, bound in wanted.items())
    rule = rung.rule.model_dump_json(exclude_none=True)
    found = (
        f"speedup {math.floor(rung.speedup * 100) / 100:.9g}, "
        f"{math.ceil(rung.expected_layers * 100) / 100:.9g} layers, "
        f"{math.ceil(rung.expected_ms * 1000) / 1000:.9g} ms"
    )
    if not safe:
        found += "; the policy's limits allow neither full depth nor a rule that is sure enough"
    return f"nothing here has {listed}; the nearest is {rule}: {found}"
