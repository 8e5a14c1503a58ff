"""What a calibration has found, on one screen."""

import shlex
from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from models.errors import UnusableData
from models.quality.calibrate import Calibrated, CalibrationJob
from models.quality.card import LOST, describe_loss, flag_bounds, flag_grid, flag_text, percent
from models.quality.certify import Certified, bounds_of
from models.quality.flag import EPSILONS as FLAG_EPSILONS
from models.quality.paths import EPSILONS
from models.quality.risk_control import rows_needed
from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import Precision
from serve.policy.ladder import OF_REFERENCE, Decisions, Ladder, Loss
from serve.rules.small import places_in_words
from serve.runtime.placement import place

_OF_TEXTS: dict[Loss, str] = {
    "missed": "texts that full depth flags",
    "false_alarms": "texts that full depth does not flag",
}


def screen(found: Calibrated) -> Iterator[str | Table]:
    """Yield all that there is to say of a variant: lines and tables.

    There is a table for each loss, with the fastest certified rule for each bound, and one for the
    flag, if one was asked for; and a line for each bound that too few texts certify.
    """
    yield from _texts(found)
    for loss in found.certified.losses:
        yield _loss_table(found, loss)
    yield from _needed_for_disagreement(found)
    for own in found.ladder.decisions:
        yield from _of_flag(found, own)


def served(job: CalibrationJob, done: Sequence[Calibrated]) -> Calibrated:
    """Return the variant that is served by default here, or the first that was calibrated."""
    precision = place(load_bundle(job.bundle), job.device, "auto").precision
    return next((each for each in done if each.ladder.precision == precision), done[0])


def outcome(found: Calibrated) -> Iterator[str | Table]:
    """Yield the one table that was asked for.

    It is of the flag, of the difference from the reference, or of that from full depth.
    """
    yield from _texts(found)
    if found.ladder.decisions:
        yield from _of_flag(found, found.ladder.decisions[0])
    else:
        yield _loss_table(found, _asked(found))
        if not found.ladder.reference:
            yield from _needed_for_disagreement(found)


def next_command(job: CalibrationJob, found: Calibrated) -> str:
    """Return the commands that show what a target saves, and serve the bundle."""
    # The first of 1 % and more that allows to leave early, or else one that full depth keeps.
    loss, ladder = _asked(found), found.ladder
    kept = {each: _fastest(ladder, loss, each) for each in bounds_of(loss) if each >= 0.01}
    served = [each for each, at in kept.items() if at is not None]
    bound = next((each for each in served if kept[each]), served[0] if served else 0.01)
    bounds = ["--max-disagreement", percent(bound).replace(" ", "")]
    if job.flag:
        flags = [f"--flag={label}={bound:g}" for label, bound in job.flag.items()]
        bounds = [*flags, "--max-missed", "1%", "--max-false-alarms", "1%"]
    elif job.reference:
        bounds += ["--reference", str(job.reference)]
    if job.exits:
        bounds += ["--active-exits", ",".join(map(str, job.exits))]
    recommend = shlex.join(["offramp", "recommend", str(job.bundle), *bounds])
    serve = shlex.join(["offramp", "serve", str(job.bundle), "--standalone"])
    return f"what a bound saves here: `{recommend}`; to serve it: `{serve}`"


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
    for column, name in enumerate(head):
        table.add_column(name, justify="left" if column == left else "right", no_wrap=True)
    return table


def _texts(found: Calibrated) -> Iterator[str]:
    """Yield how many texts did what, and what it would be if equal ones counted once."""
    ladder = found.ladder
    yield (
        f"{ladder.precision}, exits {places_in_words(ladder.layers, ladder.small)}: "
        f"{ladder.num_tuning} texts chose the rules, {ladder.num_certifying} others certify (delta "
        f"{found.certified.delta:g})"
    )
    if once := found.once:
        loss, bound = _asked(found), "at most 1 %"
        count, single = _layers(found.certified, loss), _layers(once, loss)
        if found.decisions_once:
            bound = "at most 1 % missed and 1 % false alarms"
            both = (*ladder.decisions, found.decisions_once)
            count, single = (f"{_flag_layers(ladder, each):.2f} layers" for each in both)
        yield (
            f"{found.certified.num_texts - once.num_texts} of those that certify repeat the tokens "
            f"of others, and each counts, as in a draw of traffic: {bound} takes {count}. If each "
            f"text counted once (--repeats once, for a collection), {single}"
        )


def _asked(found: Calibrated) -> Loss:
    """Return the loss that targets are mostly about."""
    return "reference" if found.ladder.reference else "disagreement"


def _layers(certified: Certified, loss: Loss) -> str:
    """Return the mean layers of the fastest rule that is certified for 1 %."""
    end, tried = certified.ends[loss, 0.01], certified.tried
    if end < 0:
        return "what no rule can"
    return f"{tried.mean_layers[end - 1] if end else tried.depth:.2f} layers"


def _flag_layers(ladder: Ladder, decided: Decisions) -> float:
    """Return the mean layers of the fastest rule that is certified for 1 % on both sides."""
    return min(
        ladder.mean_layers(rung)
        for rung in decided.rungs
        if all(each.epsilon <= 0.01 for each in rung.certificates)
    )


def _loss_table(found: Calibrated, loss: Loss) -> Table:
    """Return the fastest rule of the ladder for each bound.

    Of a reference the bounds are those at which another rule is the fastest, and of those that not
    even full depth is certified for the largest.
    """
    ladder = found.ladder
    table = _table(
        describe_loss(loss, ladder), ("at most", "fastest certified rule", "layers", "seen"), left=1
    )
    fastest = {bound: _fastest(ladder, loss, bound) for bound in bounds_of(loss)}
    telling = list(fastest)
    if loss in OF_REFERENCE:
        first = {at: bound for bound, at in reversed(fastest.items())}
        none = [bound for bound, at in fastest.items() if at is None][-1:]
        telling = sorted({*none, *(bound for at, bound in first.items() if at is not None)})
    for bound in telling:
        table.add_row(percent(bound), *_promise(found, loss, bound, fastest[bound]))
    return table


def _fastest(ladder: Ladder, loss: Loss, bound: float) -> int | None:
    """Return the index of the fastest rung that keeps a bound; None if not even full depth does."""
    kept = [0] if loss not in OF_REFERENCE else []
    for at, rung in enumerate(ladder.rungs):
        certificate = rung.certificate(loss)
        if certificate and certificate.epsilon <= bound:
            kept.append(at)
    return kept[-1] if kept else None


def _promise(found: Calibrated, loss: Loss, bound: float, at: int | None) -> tuple[str, str, str]:
    """Return the rule, its mean layers, and what the certifying texts lose by it."""
    ladder = found.ladder
    if at is None:
        tried = found.certified.tried
        at_full_depth, binary = tried.at_full_depth(loss), loss in tried.losses.binary
        needed = rows_needed(at_full_depth, bound, found.certified.delta, binary) or 0
        why = "full depth differs too often"
        if needed > found.certified.num_texts:
            why = f"too few texts, {needed} must certify"
        return f"none: {why}", "", f"{100 * at_full_depth:.2f} %"
    rung = ladder.rungs[at]
    certificate = rung.certificate(loss)
    seen = f"{100 * certificate.observed:.2f} %" if certificate else ""
    return rung.rule.text(), f"{ladder.mean_layers(rung):.2f}", seen


def _of_flag(found: Calibrated, own: Decisions) -> Iterator[str | Table]:
    yield _flag_table(found.ladder, own)
    yield from _shortages(own, found.ladder.num_certifying, found.certified.delta)


def _needed_for_disagreement(found: Calibrated) -> Iterator[str]:
    for epsilon in EPSILONS:
        if not found.certified.ends["disagreement", epsilon]:
            yield f"at most {percent(epsilon)}: {_needed(found.certified, epsilon)}"


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
        return (
            "the texts would be enough, but some differ already by the strictest rule; with as "
            "many others it may be certified"
        )
    return f"too few texts; {', '.join(needed).replace('more', 'more that certify are needed', 1)}"
