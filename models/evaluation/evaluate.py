"""What a multi-exit model is worth: figures per exit, and what exit rules cost and save."""

import numpy as np

from models.evaluation.candidates import candidates
from models.evaluation.outcome import Outcome
from models.evaluation.scores import agreement, main_metric, score
from serve.bundle.calibration import Data, ExitFigures, OperatingPoint, VariantCalibration
from serve.policy.document import Policy
from serve.rules import ExitRule, NeverRule
from serve.rules.replay import Taken, answers_taken

# How much of its metric, of 1, a profile may give away against the last exit.
PROFILES = {"balanced": 0.005, "fast": 0.02}


def exit_figures(outcome: Outcome) -> tuple[ExitFigures, ...]:
    """Return what every exit is worth when it answers all rows."""
    return tuple(
        ExitFigures(layer=layer, **score(outcome, logits)._asdict())
        for layer, logits in zip(outcome.exits, outcome.logits, strict=True)
    )


def operating_point(outcome: Outcome, rule: ExitRule) -> OperatingPoint:
    """Return what a rule gives on the data, judged as the server judges."""
    taken = _taken(outcome, rule)
    # A label that was voted for need not be that of the largest logit.
    logits = taken.deciding
    return OperatingPoint(
        rule=rule,
        agreement=agreement(outcome, logits),
        mean_exit_layer=float(np.array(outcome.exits)[taken.exits].mean()),
        **score(outcome, logits)._asdict(),
    )


def choose_policy(outcome: Outcome) -> Policy:
    """Return the policy with profiles `exact`, `balanced` (the default) and `fast`.

    A profile's rule is the one that runs the fewest layers while the task's main metric
    (`models.evaluation.scores.main_metric`) stays within the profile's allowance (`PROFILES`) of
    the last exit's. It is chosen on this very data, so its figures flatter it slightly.
    """
    metric = main_metric(outcome.traits)
    floor = exit_figures(outcome)[-1].value(metric)
    tried = [operating_point(outcome, rule) for rule in candidates(outcome).tried]
    profiles: dict[str, ExitRule] = {"exact": NeverRule()}
    for name, allowance in PROFILES.items():
        # The tightest rule never leaves early, so there is always one. Of equals the loosest,
        # but of those that save nothing the tightest, which says so.
        kept = [p for p in reversed(tried) if p.value(metric) >= floor - allowance - 1e-9]
        best = min(kept, key=lambda point: point.mean_exit_layer)
        saves = best.mean_exit_layer < outcome.exits[-1]
        profiles[name] = best.rule if saves else tried[0].rule
    return Policy(default="balanced", profiles=profiles)


def calibrate(outcome: Outcome, data: Data, policy: Policy) -> VariantCalibration:
    """Return the figures to publish: of exits, of a range of rules, of the profiles'."""
    tried, published = candidates(outcome)
    shown = [*published, *policy.profiles.values()]
    rules = [rule for rule in tried if rule in shown]
    rules += [rule for rule in published if rule not in tried]
    return VariantCalibration(
        data=data,
        metric=main_metric(outcome.traits),
        exits=exit_figures(outcome),
        operating_points=tuple(operating_point(outcome, rule) for rule in rules),
    )


def _taken(outcome: Outcome, rule: ExitRule) -> Taken:
    temperatures = (1.0,) * len(outcome.exits)
    return answers_taken(outcome.logits, rule, outcome.traits, temperatures, outcome.counted)
