"""What is certified of a flag's decisions, in words and as a table."""

from collections.abc import Iterator

from models.certification.decisions import EPSILONS, SIDES
from models.certification.risk_control import rows_needed
from serve.policy.ladder import Decisions, Ladder, Loss, Rung
from serve.rules import DecisionRule

# What the texts of each loss are, and what has become of those that count.
OF_TEXTS: dict[Loss, str] = {
    "missed": "texts that full depth flags",
    "false_alarms": "texts that full depth does not flag",
}
LOST: dict[Loss, str] = {
    "missed": "flagged at full depth, missed early",
    "false_alarms": "flagged early, not at full depth",
}
CORNER = "missed, false alarms at most"
NO_SIDE = "not early"


def percent(share: float) -> str:
    """Format a bound."""
    return f"{100 * share:g} %"


def written(flag: dict[str, float]) -> str:
    """Return a flag in a few words."""
    return ", ".join(f"{label} from {bound:g} on" for label, bound in flag.items())


def grid(ladder: Ladder, decided: Decisions) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table: the mean layers of the fastest rule for each pair of bounds.

    Rows bound what is missed, columns false alarms. The first row and column are of rules that let
    no text leave early on that side.
    """
    sides = [[None, *_bounds_of(decided, loss)] for loss in SIDES]
    head = [CORNER, *(_at_most(bound) for bound in sides[1])]
    rows = [
        [_at_most(missed), *(_layers(ladder, decided, missed, alarms) for alarms in sides[1])]
        for missed in sides[0]
    ]
    return head, rows


def shortages(decided: Decisions, num_texts: int, delta: float) -> Iterator[str]:
    """Yield a sentence for each bound that no rule of a side is certified for."""
    for loss in SIDES:
        certified = _bounds_of(decided, loss)
        for epsilon in EPSILONS:
            if not any(bound <= epsilon for bound in certified):
                yield f"{LOST[loss]}, at most {percent(epsilon)}: " + shortage(
                    decided, num_texts, loss, epsilon, delta
                )


def shortage(decided: Decisions, num_texts: int, loss: Loss, epsilon: float, delta: float) -> str:
    """Return how many texts would certify a bound if none of them is lost.

    (1 - epsilon)^n is then at most delta.
    """
    own = decided.num_flagged if loss == "missed" else num_texts - decided.num_flagged
    needed = rows_needed(0, epsilon, delta) or own
    if needed <= own:
        return f"no rule, for the strictest one loses too much on {own} {OF_TEXTS[loss]}"
    more = needed - own
    sentence = f"too few {OF_TEXTS[loss]}: {own} certify, {more} more are needed if none is lost"
    if own:
        sentence += f"; about {round(more * num_texts / own)} more texts like these have as many"
    return sentence


def _bounds_of(decided: Decisions, loss: Loss) -> list[float]:
    found = (rung.certificate(loss) for rung in decided.rungs)
    return sorted({each.epsilon for each in found if each})


def _at_most(bound: float | None) -> str:
    return NO_SIDE if bound is None else percent(bound)


def _layers(ladder: Ladder, decided: Decisions, missed: float | None, alarms: float | None) -> str:
    fitting = [
        ladder.mean_layers(rung)
        for rung in decided.rungs
        if _keeps(rung, "missed", missed) and _keeps(rung, "false_alarms", alarms)
    ]
    return f"{min(fitting):.2f}"


def _keeps(rung: Rung, loss: Loss, bound: float | None) -> bool:
    rule = rung.rule
    side = None
    if isinstance(rule, DecisionRule):
        side = rule.leave_below if loss == "missed" else rule.leave_above
    certificate = rung.certificate(loss)
    if side is None or bound is None:
        return side is None
    return certificate is not None and certificate.epsilon <= bound
