"""Every exit when it answers all texts."""

from typing import Any

from models.quality.analysis import Analysis
from models.quality.card import hundredths, title, unit
from models.quality.costs import MFLOPS, MFLOPS_LINEAR, MS
from models.quality.points import STATIC
from models.quality.scores import benchmark_scores, exit_figures
from models.report.markdown import table
from models.report.parts.calibration import reliability
from models.report.parts.part import Part
from models.report.parts.rules import UNITS
from models.report.wording import interval
from serve.bundle.calibration import ExitFigures

TITLE = "Exits"
_FLOPS = (
    "MFLOPs are counted by PyTorch's counter, in two conventions: whole (two operations for each "
    "multiply-accumulate, with attention, softmax and layer norm, as the ELUE benchmark counts) "
    "and of linear layers alone (as `thop` counts, with which FastBERT was published). They are "
    "means over the data's texts, each of its own length, that stop at the layer."
)
_TIMES = (
    "Milliseconds are those of a lone text of {tokens:.0f} tokens, the data's mean, on this "
    "machine, measured as the server measures those of its ladder."
)


def exits_part(analysis: Analysis) -> Part:
    """Return the table of exits."""
    figures, errors = exit_figures(analysis.recorded, benchmark_scores), None
    if analysis.recorded.traits.task != "regression":
        errors = [found.bins.ece for found in reliability(analysis.recorded)]
    tokens = analysis.recorded.num_tokens.mean()
    notes = [_TIMES.format(tokens=tokens)] if MS in analysis.costs else []
    notes += [_FLOPS] if MFLOPS in analysis.costs else []
    return Part(
        TITLE, [_table(analysis, figures, errors), *notes], _json(analysis, figures, errors)
    )


def _table(analysis: Analysis, figures: tuple[ExitFigures, ...], errors: list[float] | None) -> str:
    units = [u for u in (MS, MFLOPS, MFLOPS_LINEAR) if u in analysis.costs]
    metrics = figures[0].measured
    head = ["exit layer", *(f"{title(m)} {unit(m)}" for m in metrics)]
    head.append(f"{title(analysis.metric)}, 95 %")
    head += [] if errors is None else ["same answer as full depth %", "ECE %"]
    rows = []
    for index, point in enumerate(analysis.points[STATIC]):
        exit_ = figures[index]
        row: list[Any] = [exit_.layer, *(hundredths(exit_.value(m)) for m in metrics)]
        row.append(interval(analysis.interval(point)))
        if errors is not None:
            row += [hundredths(1 - (point.disagreement or 0)), hundredths(errors[index])]
        rows.append([*row, *(point.costs[u] for u in units)])
    return table([*head, *(UNITS[u] for u in units)], rows)


def _json(
    analysis: Analysis, figures: tuple[ExitFigures, ...], errors: list[float] | None
) -> list[dict[str, Any]]:
    return [
        {
            "layer": figures[index].layer,
            "accuracy": figures[index].accuracy,
            **figures[index].metrics,
            "interval": analysis.interval(point),
            "ece": None if errors is None else errors[index],
            "costs": point.costs,
        }
        for index, point in enumerate(analysis.points[STATIC])
    ]
