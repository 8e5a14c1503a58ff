"""Every exit when it answers all texts, where texts leave, and what an oracle could do."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.quality.analysis import Analysis
from models.quality.card import hundredths, title, unit
from models.quality.costs import LAYERS, MFLOPS, MFLOPS_LINEAR, MS
from models.quality.page import Part, missing, percent, table
from models.quality.points import LADDER, PROFILES, STATIC
from models.quality.report.calibration import reliability
from models.quality.report.wording import interval, no_family
from models.quality.scores import benchmark_scores, exit_figures
from models.quality.style import spread

UNITS = {LAYERS: "mean layers", MS: "ms", MFLOPS: "MFLOPs", MFLOPS_LINEAR: "MFLOPs, linear layers"}
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
_MOST_RUNGS = 6
_RIGHT = {
    "single_label": "An answer is right if it is the correct label.",
    "multi_label": "An answer is right if it is the whole set of labels.",
    "token": "An answer is right if it has all entities of the text and no others.",
}


def exits_part(analysis: Analysis) -> Part:
    """Return the table of exits."""
    found, errors = exit_figures(analysis.recorded, benchmark_scores), None
    if analysis.recorded.traits.task != "regression":
        errors = [exit_.bins.ece for exit_ in reliability(analysis.recorded)]
    units = [u for u in (MS, MFLOPS, MFLOPS_LINEAR) if u in analysis.costs]
    metrics = found[0].measured
    head = ["exit layer", *(f"{title(m)} {unit(m)}" for m in metrics)]
    head.append(f"{title(analysis.metric)}, 95 %")
    head += [] if errors is None else ["same answer as full depth %", "ECE %"]
    rows, figures = [], []
    for index, point in enumerate(analysis.points[STATIC]):
        exit_, sure = found[index], point.interval
        row: list[Any] = [exit_.layer, *(hundredths(exit_.value(m)) for m in metrics)]
        row.append(interval(sure))
        if errors is not None:
            row += [hundredths(1 - (point.disagreement or 0)), hundredths(errors[index])]
        rows.append([*row, *(point.costs[u] for u in units)])
        own = {"layer": exit_.layer, "accuracy": exit_.accuracy, **exit_.metrics}
        ece = None if errors is None else errors[index]
        figures.append(own | {"interval": sure, "ece": ece, "costs": point.costs})
    notes = [_TIMES.format(tokens=analysis.recorded.num_tokens.mean())] if MS in units else []
    notes += [_FLOPS] if MFLOPS in units else []
    return Part("Exits", [table([*head, *(UNITS[u] for u in units)], rows), *notes], figures)


def shares_part(analysis: Analysis) -> Part:
    """Return the exit shares of profiles, rungs, and a rule that knew the answers."""
    heading = "Where texts leave"
    if analysis.headline is None:
        return missing(heading, no_family(analysis))
    profiles = analysis.points.get(PROFILES, [])
    rules = [profile.rule for profile in profiles]
    rungs = [rung for rung in analysis.points.get(LADDER, []) if rung.rule not in rules]
    named = {f"{p.name}: {p.rule.text()}": p.exit_shares for p in profiles}
    for place in spread(len(rungs), _MOST_RUNGS):
        named[f"rung: {rungs[place].rule.text()}"] = rungs[place].exit_shares
    words = "Share of texts that leave at each exit, in percent."
    if analysis.recorded.right is not None:
        oracle = overthinking(analysis.recorded.right, analysis.exits)
        named["oracle (knows the answers)"] = list(oracle.oracle_shares)
    head = ["rule", *(f"layer {layer}" for layer in analysis.exits)]
    rows = [[name, *(f"{100 * share:.1f}" for share in shares)] for name, shares in named.items()]
    return Part(heading, [words, table(head, rows)], named)


class Overthinking(NamedTuple):
    """What a rule that knew the correct answers could do.

    Overthinking is a text that an earlier exit has right and full depth has wrong; the word and the
    oracle are those of Kaya et al. 2019 (Shallow-Deep Networks).

    Attributes:
        overthought: share of texts that some earlier exit has right and the last one wrong.
        rescued: share of texts that the last exit has right and all earlier ones wrong.
        right_now_wrong_later: (exits,) share of texts right at the exit and wrong at the last.
        wrong_now_right_later: (exits,) share of texts wrong at the exit and right at the last.
        oracle_accuracy: share of texts that any exit has right.
        oracle_depth: mean layers, if each text leaves at the first exit that has it right, and at
            the last one if none has.
        oracle_shares: (exits,) where texts then leave.
        full_accuracy: share of texts that the last exit has right.
    """

    overthought: float
    rescued: float
    right_now_wrong_later: tuple[float, ...]
    wrong_now_right_later: tuple[float, ...]
    oracle_accuracy: float
    oracle_depth: float
    oracle_shares: tuple[float, ...]
    full_accuracy: float


def overthinking(right: NDArray[np.bool_], exits: tuple[int, ...]) -> Overthinking:
    """Compare every exit's answers with the correct ones.

    Args:
        right: (exits, rows) whether an answer is correct.
        exits: their layers.
    """
    last, earlier, any_right = right[-1], right[:-1].any(axis=0), right.any(axis=0)
    leaves_at = np.where(any_right, right.argmax(axis=0), len(right) - 1)
    shares = np.bincount(leaves_at, minlength=len(exits)) / len(last)
    return Overthinking(
        overthought=float((earlier & ~last).mean()),
        rescued=float((last & ~earlier).mean()),
        right_now_wrong_later=tuple((right & ~last).mean(axis=1).tolist()),
        wrong_now_right_later=tuple((~right & last).mean(axis=1).tolist()),
        oracle_accuracy=float(any_right.mean()),
        oracle_depth=float(shares @ np.array(exits)),
        oracle_shares=tuple(shares.tolist()),
        full_accuracy=float(last.mean()),
    )


def overthinking_part(analysis: Analysis) -> Part:
    """Return how much a rule that knew the answers could do."""
    heading, exits, right = "Overthinking", analysis.exits, analysis.recorded.right
    if right is None:
        return missing(heading, "a regression's values are neither right nor wrong")
    if len(exits) < 2:
        return missing(heading, "the model has a single exit")
    found = overthinking(right, exits)
    words = (
        f"{_RIGHT[analysis.recorded.traits.task]} {percent(found.overthought, 2)} of the texts "
        f"have a right answer at an earlier exit and a wrong one at full depth; "
        f"{percent(found.rescued, 2)} have a right answer at full depth only. An oracle that let "
        f"each text leave at the first exit that has it right, and at the last where none has, "
        f"would be right on {percent(found.oracle_accuracy, 2)} of the texts "
        f"({percent(found.full_accuracy, 2)} at full depth) with {found.oracle_depth:.2f} mean "
        f"layers of {exits[-1]}."
    )
    rows = zip(exits[:-1], found.wrong_now_right_later, found.right_now_wrong_later, strict=False)
    head = ["exit layer", "wrong here, right at full depth %", "right here, wrong at full depth %"]
    cells = [
        [layer, hundredths(repaired), hundredths(spoiled)] for layer, repaired, spoiled in rows
    ]
    return Part(heading, [words, table(head, cells)], found._asdict())
