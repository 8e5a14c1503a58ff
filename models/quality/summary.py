"""What a calibration has found, on one screen."""

from collections.abc import Iterator, Mapping

from rich.table import Table

from models.errors import UnusableData
from models.quality.calibrate import Calibrated
from models.quality.card import LOST, describe_loss, flag_bounds, flag_grid, flag_text, percent
from models.quality.certify import Certified, bounds_of
from models.quality.flag import EPSILONS as FLAG_EPSILONS
from models.quality.paths import EPSILONS
from models.quality.risk_control import rows_needed
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.policy.ladder import OF_REFERENCE, Decisions, Ladder, Loss

_OF_TEXTS: dict[Loss, str] = {
    "missed": "texts that full depth flags",
    "false_alarms": "texts that full depth does not flag",
}


def screen(found: Calibrated) -> Iterator[str | Table]:
    """Yield what there is to say of a variant: lines and tables.

    There is a table for each loss, with the fastest certified rule for each bound, and one for the
    flag, if one was asked for; and a line for each bound that too few texts certify.
    """
    certified, ladder = found.certified, found.ladder
    yield (
        f"{ladder.precision}, exits {', '.join(map(str, ladder.exits))}: {ladder.num_tuning} texts "
        f"chose the rules, {ladder.num_certifying} others certify (delta {certified.delta:g})"
    )
    for loss in certified.losses:
        head = ("at most", "fastest certified rule", "layers", "seen")
        table = _table(describe_loss(loss, ladder), head, left=1)
        for epsilon in _telling(certified, loss):
            table.add_row(percent(epsilon), *_promise(certified, loss, epsilon))
        yield table
    for epsilon in EPSILONS:
        if not certified.ends["disagreement", epsilon]:
            yield f"at most {percent(epsilon)}: {_needed(certified, epsilon)}"
    for own in ladder.decisions:
        yield _flag_table(ladder, own)
        yield from _shortages(own, ladder.num_certifying, certified.delta)


def flag_overview(bundle: Bundle, precision: Precision, flag: Mapping[str, float]) -> Table:
    """Return the table of a flag that a bundle has certificates of.

    Raises:
        UnusableData: it has none.
    """
    ladder = bundle.ladder(precision)
    decided = ladder and ladder.decided(flag)
    if not ladder or not decided:
        options = " ".join(f"--flag '{label}={bound:g}'" for label, bound in flag.items())
        raise UnusableData(
            f"no decision of this flag is certified for {precision}: run `offramp calibrate "
            f"{bundle.folder} --data FILE {options}`"
        )
    return _flag_table(ladder, decided)


def shortage(decided: Decisions, num_texts: int, loss: Loss, epsilon: float, delta: float) -> str:
    """Return how many texts would certify a bound of a flag if none of them is lost.

    (1 - epsilon)^n is then at most delta.
    """
    own = decided.num_flagged if loss == "missed" else num_texts - decided.num_flagged
    needed = rows_needed(0, epsilon, delta) or own
    if needed <= own:
        return f"no rule, for the strictest one loses too much on {own} {_OF_TEXTS[loss]}"
    more = needed - own
    sentence = f"too few {_OF_TEXTS[loss]}: {own} certify, {more} more are needed if none is lost"
    if own:
        sentence += f"; about {round(more * num_texts / own)} more texts like these have as many"
    return sentence


def _shortages(decided: Decisions, num_texts: int, delta: float) -> Iterator[str]:
    """Yield a sentence for each bound that no rule of a side is certified for."""
    for loss, words in LOST.items():
        certified = flag_bounds(decided, loss)
        for epsilon in FLAG_EPSILONS:
            if not any(bound <= epsilon for bound in certified):
                lacking = shortage(decided, num_texts, loss, epsilon, delta)
                yield f"{words}, at most {percent(epsilon)}: {lacking}"


def _flag_table(ladder: Ladder, own: Decisions) -> Table:
    """Return the mean layers of the fastest certified rules for each pair of bounds."""
    title = (
        f"flag {flag_text(own.flag)}: mean layers by how many of the {own.num_flagged} texts that "
        f"full depth flags are missed at most, and how many of the other "
        f"{ladder.num_certifying - own.num_flagged} are false alarms"
    )
    head, rows = flag_grid(ladder, own)
    table = _table(title, head)
    for row in rows:
        table.add_row(*row)
    return table


def _table(title: str, head: tuple[str, ...] | list[str], left: int | None = None) -> Table:
    """Return an empty table whose columns are aligned to the right, but for one."""
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for place, name in enumerate(head):
        table.add_column(name, justify="left" if place == left else "right", no_wrap=True)
    return table


def _telling(certified: Certified, loss: Loss) -> list[float]:
    """Return the bounds to show: of a reference, those at which another rule is the fastest.

    Of the bounds that not even full depth is certified for, it is the largest.
    """
    bounds, ends = bounds_of(loss), certified.ends
    if loss not in OF_REFERENCE:
        return list(bounds)
    first = {ends[loss, bound]: bound for bound in reversed(bounds)}
    largest = [bound for bound in bounds if ends[loss, bound] < 0][-1:]
    return [*largest, *(first[end] for end in sorted(first) if end >= 0)]


def _promise(certified: Certified, loss: Loss, epsilon: float) -> tuple[str, str, str]:
    tried, end = certified.tried, certified.ends[loss, epsilon]
    at_full_depth = f"{100 * tried.at_full_depth(loss):.2f} %" if loss in OF_REFERENCE else ""
    if end < 0:
        return "none: full depth differs too often", "", at_full_depth
    if not end:
        return "never", f"{tried.layers[-1]:.2f}", at_full_depth
    seen = f"{100 * certified.risk(loss, end - 1):.2f} %"
    return tried.path.rules[end - 1].text(), f"{tried.mean_layers[end - 1]:.2f}", seen


def _needed(certified: Certified, epsilon: float) -> str:
    """Return how many more texts would certify the strictest rule of the path."""
    risk = certified.risk("disagreement", 0)
    at_best = rows_needed(0, epsilon, certified.delta)
    likely = rows_needed(risk, epsilon, certified.delta)
    if at_best is None or likely is None:
        return f"no rule, for {100 * risk:.2f} % differ by the strictest one already"
    wanted = {"none of all differs": at_best}
    if risk:
        wanted[f"{100 * risk:.2f} % do, as by the strictest rule here"] = likely
    more = {if_: num_texts - certified.num_texts for if_, num_texts in wanted.items()}
    needed = [f"{number} more if {if_}" for if_, number in more.items() if number > 0]
    if not needed:
        return "the strictest rule has failed by chance; more texts may certify it"
    return f"too few texts; {', '.join(needed).replace('more', 'more that certify are needed', 1)}"
