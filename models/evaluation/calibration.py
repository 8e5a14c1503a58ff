"""Figures of a multi-exit model: the quality of each exit, the cost and saving of exit rules."""

import numpy as np

from models.evaluation.predictions import Predictions
from models.evaluation.published_rules import published_rules
from models.evaluation.task_metrics import agreement, main_metric, score
from serve.bundle.calibration import ExitFigures, OperatingPoint, VariantCalibration
from serve.policy.ladder import Data
from serve.rules import ExitRule
from serve.rules.replay import Taken, answers_taken


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


def figures_of(predictions: Predictions, data: Data) -> VariantCalibration:
    """Return the figures to publish: of exits and of rules."""
    rules = published_rules(predictions)
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
