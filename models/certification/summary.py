"""What a calibration has found, on one screen."""

from collections.abc import Iterator, Mapping

from rich.table import Table

from models.certification.card import describe_loss
from models.certification.flag_words import grid, percent, shortages, written
from models.certification.risk_control import rows_needed
from models.certification.rungs import Certified
from models.certification.variant import VariantLadder
from models.errors import UnusableData
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.policy.ladder import OF_REFERENCE, Decisions, Ladder, Loss


def headline(found: VariantLadder) -> str:
    """Return how many texts did what, in one sentence."""
    ladder = found.ladder
    return (
        f"{ladder.precision}, exits {', '.join(map(str, ladder.exits))}: {ladder.num_tuning} texts "
        f"chose the rules, {ladder.num_certifying} others certify (delta "
        f"{found.certified.terms.delta:g})"
    )


def promises(found: VariantLadder) -> Iterator[Table]:
    """Yield a table for each loss: the fastest certified rule for each bound."""
    certified = found.certified
    for loss in certified.losses:
        bounds = _telling(certified, loss)
        title = describe_loss(loss, found.ladder)
        table = Table(box=None, pad_edge=False, title=title, title_justify="left")
        table.add_column("at most", justify="right", no_wrap=True)
        table.add_column("fastest certified rule", no_wrap=True)
        table.add_column("layers", justify="right")
        table.add_column("seen", justify="right", no_wrap=True)
        for epsilon in bounds:
            table.add_row(percent(epsilon), *_promise(certified, loss, epsilon))
        yield table


def lacking(found: VariantLadder) -> Iterator[str]:
    """Yield a sentence for each bound of disagreement that no rule is certified for."""
    certified, ends = found.certified, found.certified.ends
    for epsilon in certified.terms.epsilons:
        if not ends["disagreement", epsilon]:
            yield f"at most {percent(epsilon)}: {_needed(certified, epsilon)}"


def decisions(found: VariantLadder) -> Iterator[Table | str]:
    """Yield what is certified of a flag, if one was asked for: a table, and what is lacking."""
    if found.decided is None:
        return
    of_flag, ladder = found.decided, found.ladder
    own = of_flag.decisions
    yield flag_table(ladder, own)
    yield from shortages(own, of_flag.num_texts, of_flag.delta)


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
    return flag_table(ladder, decided)


def flag_table(ladder: Ladder, own: Decisions) -> Table:
    """Return the mean layers of the fastest certified rules for each pair of bounds."""
    title = (
        f"flag {written(own.flag)}: mean layers by how many of the {own.num_flagged} texts that "
        f"full depth flags are missed at most, and how many of the other "
        f"{ladder.num_certifying - own.num_flagged} are false alarms"
    )
    head, rows = grid(ladder, own)
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for name in head:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _telling(certified: Certified, loss: Loss) -> list[float]:
    """Return the bounds to show: of a reference, those at which another rule is the fastest.

    Of the bounds that not even full depth is certified for, it is the largest.
    """
    bounds, ends = certified.terms.bounds(loss), certified.ends
    if loss not in OF_REFERENCE:
        return list(bounds)
    first = {ends[loss, bound]: bound for bound in reversed(bounds)}
    largest = [bound for bound in bounds if ends[loss, bound] < 0][-1:]
    return [*largest, *(first[end] for end in sorted(first) if end >= 0)]


def _promise(certified: Certified, loss: Loss, epsilon: float) -> tuple[str, str, str]:
    replay, end = certified.replay, certified.ends[loss, epsilon]
    at_full_depth = f"{100 * replay.at_full_depth(loss):.2f} %" if loss in OF_REFERENCE else ""
    if end < 0:
        return "none: full depth differs too often", "", at_full_depth
    if not end:
        return "never", f"{replay.layers[-1]:.2f}", at_full_depth
    rule = replay.path.rules[end - 1].text()
    seen = f"{100 * replay.risks(loss)[end - 1]:.2f} %"
    return rule, f"{replay.mean_layers[end - 1]:.2f}", seen


def _needed(certified: Certified, epsilon: float) -> str:
    """Return how many more texts would certify the strictest rule of the path."""
    terms, risk = certified.terms, float(certified.replay.risks("disagreement")[0])
    at_best = rows_needed(0, epsilon, terms.delta)
    likely = rows_needed(risk, epsilon, terms.delta)
    if at_best is None or likely is None:
        return f"no rule, for {100 * risk:.2f} % differ by the strictest one already"
    wanted = {"none of all differs": at_best}
    if risk:
        wanted[f"{100 * risk:.2f} % do, as by the strictest rule here"] = likely
    more = {if_: num_texts - terms.num_certifying for if_, num_texts in wanted.items()}
    needed = [f"{number} more if {if_}" for if_, number in more.items() if number > 0]
    if not needed:
        return "the strictest rule has failed by chance; more texts may certify it"
    return f"too few texts; {', '.join(needed).replace('more', 'more that certify are needed', 1)}"
