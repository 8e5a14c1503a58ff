"""Figures of a multi-exit model: the quality of each exit, the cost and saving of exit rules."""

import numpy as np

from models.evaluation.candidate_rules import candidate_rules
from models.evaluation.predictions import Predictions
from models.evaluation.task_metrics import agreement, main_metric, score
from serve.bundle.calibration import Data, ExitFigures, OperatingPoint, VariantCalibration
from serve.policy.document import Policy, RuleOrTarget
from serve.rules import ExitRule, NeverRule
from serve.rules.replay import Taken, answers_taken

# How far a profile's main metric, from 0 to 1, may fall below the last exit's.
PROFILES = {"balanced": 0.005, "fast": 0.02}


def exit_figures(predictions: Predictions) -> tuple[ExitFigures, ...]:
    """Return the metrics of every exit when it answers all rows."""
    return tuple(
        ExitFigures(layer=layer, **score(predictions, logits)._asdict())
        for layer, logits in zip(predictions.exits, predictions.logits, strict=True)
    )


def operating_point(predictions: Predictions, rule: ExitRule) -> OperatingPoint:
    """Return a rule's metrics on the data, with exits chosen as the server chooses them."""
    taken = _taken(predictions, rule)
    # The label that a voting rule decides on need not have the largest logit at the exit.
    logits = taken.deciding
    return OperatingPoint(
        rule=rule,
        agreement=agreement(predictions, logits),
        mean_exit_layer=float(np.array(predictions.exits)[taken.exits].mean()),
        **score(predictions, logits)._asdict(),
    )


def choose_policy(predictions: Predictions) -> Policy:
    """Return the policy with profiles `exact`, `balanced` (the default) and `fast`.

    A profile's rule is the one that runs the fewest layers while the task's main metric stays
    within the profile's allowance (`PROFILES`) of the last exit's. The rule is chosen on the data
    on which its figures are measured, so they are slightly optimistic.
    """
    metric = main_metric(predictions.traits)
    floor = exit_figures(predictions)[-1].value(metric)
    tried = [operating_point(predictions, rule) for rule in candidate_rules(predictions).tried]
    profiles: dict[str, RuleOrTarget] = {"exact": NeverRule()}
    for name, allowance in PROFILES.items():
        # The strictest rule never leaves early, so `kept` is never empty. Of equally fast rules
        # the loosest is taken, but the strictest where no rule saves anything.
        kept = [p for p in reversed(tried) if p.value(metric) >= floor - allowance - 1e-9]
        best = min(kept, key=lambda point: point.mean_exit_layer)
        saves = best.mean_exit_layer < predictions.exits[-1]
        profiles[name] = best.rule if saves else tried[0].rule
    return Policy(default="balanced", profiles=profiles)


def calibrate(predictions: Predictions, data: Data, policy: Policy) -> VariantCalibration:
    """Return the figures to publish: of exits, candidate rules and profiles."""
    tried, published = candidate_rules(predictions)
    wanted = [*published, *policy.profiles.values()]
    rules = [rule for rule in tried if rule in wanted]
    rules += [rule for rule in published if rule not in tried]
    return VariantCalibration(
        data=data,
        metric=main_metric(predictions.traits),
        exits=exit_figures(predictions),
        operating_points=tuple(operating_point(predictions, rule) for rule in rules),
    )


def _taken(predictions: Predictions, rule: ExitRule) -> Taken:
    temperatures = (1.0,) * len(predictions.exits)
    return answers_taken(
        predictions.logits, rule, predictions.traits, temperatures, predictions.in_text
    )
