"""From a target to a rung: which rule is used for what a client or an operator wants.

Bookkeeping alone. A target that limits what answers may lose gets the rung with the fewest layers
that keeps all of its bounds; the choice is the same in every replica. A target that is about speed
alone gets the safest rung that is fast enough.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from serve.errors import TargetOutOfReach
from serve.policy.ladder import OF_REFERENCE, Certificate, Loss
from serve.policy.profile import NO_SETTINGS, Settings
from serve.policy.target import Target
from serve.rules import CompiledRule, ExitRule

# A figure that a client has read, and sends back rounded to seven digits, is met.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class ServedRung:
    """A rung as this server runs it under its policy's limits.

    Attributes:
        rule: the rung's rule within the limits.
        full_depth: whether every text runs all layers, so that it loses nothing against full depth.
        expected_layers: mean number of layers per text.
        expected_ms: mean time from a text's first layer to its answer, of texts that are alone.
        speedup: full depth's time over `expected_ms`.
        disagreement: share of the certifying texts with another answer than full depth's; None
            where that was not measured with just this rule.
        reference_disagreement: share with another answer than the reference's; None where there is
            no reference, or that was not measured with just this rule.
        certificates: at most one per loss.
        certain: what cannot be lost by such a rule, and so needs no certificate.
        noise: the share by which the measured speedup may be off; 0 at full depth, whose is 1.
        exit_shares: (layers,) how many of the certifying texts leave at each of `Traits.layers`.
    """

    rule: ExitRule
    full_depth: bool
    expected_layers: float
    expected_ms: float
    speedup: float
    disagreement: float | None = None
    reference_disagreement: float | None = None
    certificates: tuple[Certificate, ...] = ()
    certain: frozenset[Loss] = frozenset()
    noise: float = 0.0
    exit_shares: tuple[float, ...] = ()

    def certificate(self, loss: Loss) -> Certificate | None:
        """Return the certificate of a loss, if the rung has one."""
        return next((c for c in self.certificates if c.loss == loss), None)

    @property
    def any_certificate(self) -> Certificate | None:
        """A certificate of what is lost against full depth, if the rung has one."""
        return next((c for c in self.certificates if c.loss not in OF_REFERENCE), None)

    def keeps(self, loss: Loss, most: float, certified: bool) -> bool:
        """Tell whether at most so much is lost, by a certificate or as measured."""
        if (self.full_depth and loss not in OF_REFERENCE) or loss in self.certain:
            return True
        certificate = self.certificate(loss)
        if certified:
            return certificate is not None and certificate.epsilon <= most
        known: dict[Loss, float | None] = {
            "disagreement": self.disagreement,
            "reference": self.reference_disagreement,
        }
        measured = known.get(loss, certificate.observed if certificate else None)
        return measured is not None and measured <= most


@dataclass(frozen=True)
class Resolution:
    """What a target has become.

    Attributes:
        rung: the rung whose rule is used.
        certificate: the certificate of what was asked for; None where nothing is certified, and at
            full depth unless a reference was asked for.
        certificates: of a target about decisions, the certificates of what is missed and of false
            alarms; what the rule cannot lose has none. None for other targets.
        problem: why the rung is only the nearest to what the target wants; None if it keeps all.
        note: why the rule never lets a text leave early, although the target allows a loss.
    """

    rung: ServedRung
    certificate: Certificate | None
    certificates: tuple[Certificate, ...] | None = None
    problem: str | None = None
    note: str | None = None

    def uncertified(self) -> "Resolution":
        """Return the same for texts that no certificate is about."""
        none = None if self.certificates is None else ()
        return replace(self, certificate=None, certificates=none)

    @cached_property
    def report(self) -> dict[str, Any]:
        """JSON data for answers to requests."""
        note = {"note": self.note} if self.note else {}
        return {
            "exit_rule": self.rung.rule.model_dump(mode="json", exclude_none=True),
            "expected_layers": self.rung.expected_layers,
            "certificate": self.certificate and self.certificate.model_dump(mode="json"),
            **self._decisions,
            **note,
        }

    @cached_property
    def texts(self) -> dict[str, str]:
        """The fields of `report` as JSON, for answers that have room for texts only.

        Of a target about decisions `certificate` is the list of both.
        """
        fields = {**self.report, "certificate": self.report["certificate"]}
        if "certificates" in fields:
            fields["certificate"] = fields.pop("certificates")
        return {name: json.dumps(value, separators=(",", ":")) for name, value in fields.items()}

    @property
    def _decisions(self) -> dict[str, Any]:
        if self.certificates is None:
            return {}
        return {"certificates": [each.model_dump(mode="json") for each in self.certificates]}


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
        rung = _fastest(fitting) if target.losses else fitting[0]
        return _found(rung, target)
    rung = _fastest(safe) if safe else rungs[0]
    return _found(rung, target, _problem(target, rung, bool(safe)))


def _safe_enough(rung: ServedRung, target: Target) -> bool:
    certified = target.needs_certificate
    if certified and not target.losses:
        return rung.full_depth or rung.any_certificate is not None
    return all(rung.keeps(loss, most, certified) for loss, most in target.losses.items())


def _fast_enough(rung: ServedRung, target: Target) -> bool:
    most = 1 + _ROUNDING
    # A safer rung that misses by no more than the measurement may be off is taken.
    speedup = rung.speedup * (most + rung.noise)
    return (
        (target.speedup is None or target.speedup <= speedup)
        and (target.max_layers is None or rung.expected_layers <= target.max_layers * most)
        and (target.max_ms is None or rung.expected_ms <= target.max_ms * most)
    )


def _fastest(rungs: Sequence[ServedRung]) -> ServedRung:
    """Return the rung with the fewest layers; of several the safest.

    Layers and not milliseconds, which each replica measures for itself.
    """
    return min(rungs, key=lambda rung: rung.expected_layers)


def _found(rung: ServedRung, target: Target, problem: str | None = None) -> Resolution:
    """Return a rung with the certificate of the loss that the target limits; of speed, any."""
    asked = next(iter(target.losses), None)
    own = rung.certificate(asked) if asked else rung.any_certificate
    both = rung.certificates if target.decides else None
    return Resolution(rung, own, both, problem)


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
    if not safe and target.of:
        found += f"; {_from_reference(rung)}"
    elif not safe:
        found += "; the policy's limits allow neither full depth nor a rule that is sure enough"
    return f"nothing here has {listed}; the nearest is {rule}: {found}"


def _from_reference(rung: ServedRung) -> str:
    share = rung.reference_disagreement
    if share is None:
        return "how often it differs from a reference is not known"
    return f"it differs from the reference for {100 * share:.2f} % of the certifying texts"


class ChosenExit(NamedTuple):
    """What a request's choice has become.

    Attributes:
        rule: the rule within the policy's limits, worked out for the variant.
        resolution: what the chosen target has become; None where a rule was chosen.
        settings: what else the chosen profile says.
        problem: why the default or a profile is not what it says; None if it is.
        movable: whether the target allows some label to differ, so that under overload a faster
            rung may take the rule's place.
        moved: whether a faster rung has taken the rule's place.
    """

    rule: CompiledRule
    resolution: Resolution | None = None
    settings: Settings = NO_SETTINGS
    problem: str | None = None
    movable: bool = False
    moved: bool = False
