"""Every exit when it answers all texts."""

from typing import Any

from models.evaluation.analysis import Analysis
from models.evaluation.costs import MFLOPS, MFLOPS_LINEAR, MS
from models.evaluation.operating_points import STATIC
from models.evaluation.reliability import reliability
from models.evaluation.tables import title, unit
from models.evaluation.task_metrics import Score, score
from models.report.blocks import Block, Table, Text
from models.report.parts.part import Part
from models.report.parts.rules import UNITS, costs_of
from models.report.wording import hundredths, interval

TITLE = "Exits"
_FLOPS = (
    "MFLOPs are counted by PyTorch's counter, in two conventions: whole (two operations for each "
    "multiply-accumulate, with attention, softmax and layer norm, as the ELUE benchmark counts) "
    "and of linear layers alone (as `thop` counts, with which FastBERT was published). They are "
    "means over the data's texts, each of its own length, that stop at the layer."
)
_TIMES = "Milliseconds are those of a lone text on this machine, from the engine's own warm-up."


def exits_part(analysis: Analysis) -> Part:
    """Return the table of exits."""
    observed = analysis.observed
    scores = [score(observed.predictions, logits) for logits in observed.predictions.logits]
    errors = None
    if observed.traits.task != "regression":
        errors = [found.bins.ece for found in reliability(observed)]
    table = _table(analysis, scores, errors)
    notes: list[Block] = [Text(_TIMES)] if MS in observed.costs else []
    notes += [Text(_FLOPS)] if MFLOPS in observed.costs else []
    return Part(TITLE, [table, *notes], _figures(analysis, scores, errors))


def _table(analysis: Analysis, scores: list[Score], errors: list[float] | None) -> Table:
    observed = analysis.observed
    units = [u for u in (MS, MFLOPS, MFLOPS_LINEAR) if u in observed.costs]
    metrics, main = _metrics(scores[0]), observed.metric.name
    head = ["exit layer", *(f"{title(m)} {unit(m)}" for m in metrics), f"{title(main)}, 95 %"]
    head += [] if errors is None else ["same answer as full depth %", "ECE %"]
    rows = []
    for index, point in enumerate(analysis.points[STATIC]):
        row: list[Any] = [observed.traits.exits[index]]
        row += [hundredths(_value(scores[index], m)) for m in metrics]
        row.append(interval(analysis.interval(point)))
        if errors is not None:
            row += [hundredths(1 - (point.disagreement or 0)), hundredths(errors[index])]
        rows.append([*row, *(analysis.mean_cost(point, u) for u in units)])
    return Table([*head, *(UNITS[u] for u in units)], rows)


def _figures(
    analysis: Analysis, scores: list[Score], errors: list[float] | None
) -> list[dict[str, Any]]:
    return [
        {
            "layer": analysis.observed.traits.exits[index],
            "accuracy": scores[index].accuracy,
            **scores[index].metrics,
            "interval": analysis.interval(point),
            "ece": None if errors is None else errors[index],
            "costs": costs_of(analysis, point),
        }
        for index, point in enumerate(analysis.points[STATIC])
    ]


def _metrics(found: Score) -> list[str]:
    return [*([] if found.accuracy is None else ["accuracy"]), *found.metrics]


def _value(found: Score, metric: str) -> float:
    if metric == "accuracy" and found.accuracy is not None:
        return found.accuracy
    return found.metrics[metric]
