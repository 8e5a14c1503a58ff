"""Cards: the README.md of models and bundles, with generated figures and certified rules.

Only the parts between two markers are generated. The rest of an existing card is kept, so
hand-written sections survive a new training run.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from models.errors import UnusableData
from models.quality.page import table
from serve.bounded_file import UnfitFile, read_file
from serve.bundle.calibration import VariantCalibration
from serve.policy.ladder import OF_REFERENCE, SCORE_TOLERANCE, Decisions, Ladder, Loss, Rung
from serve.policy.profile import RuleOrTarget
from serve.policy.target import TargetChoice
from serve.rules import DecisionRule
from serve.rules.small import places_in_words
from serve.rules.traits import Task, Traits

FIGURES = ("<!-- figures: written by offramp -->", "<!-- end of figures -->")
TRAINING = ("<!-- training: written by offramp -->", "<!-- end of training -->")
CERTIFICATES = ("<!-- certificates: written by offramp -->", "<!-- end of certificates -->")
TRAINING_HEADING = "## Training"
_MOST_BYTES = 4 << 20

# By task: Hugging Face's pipeline tag, and a description.
KINDS: dict[Task, tuple[str, str]] = {
    "single_label": ("text-classification", "A text classifier"),
    "multi_label": ("text-classification", "A text classifier that gives any number of labels"),
    "regression": ("text-classification", "A model that gives a text, or two, a number"),
    "token": ("token-classification", "A tagger of words"),
}

_TITLES = {
    "f1": "F1",
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
    "entity_f1": "entity F1",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "mcc": "MCC",
    "accuracy_and_f1": "accuracy and F1",
    "pearson_and_spearman": "Pearson and Spearman",
}
_CORRELATIONS = {"pearson", "spearman", "mcc", "pearson_and_spearman"}

NEW_CARD = """---
library_name: transformers
pipeline_tag: {tag}
tags: [early-exit, {tag}, offramp]
metrics: [{metrics}]
---

# {name}

{kind} that may answer after any of several layers, trained with `offramp train`.
"""


def read_card(path: Path) -> str:
    """Return a card that may be anybody's; bytes that are no UTF-8 are written as they were.

    Raises:
        UnusableData: it is no regular file, or too large.
    """
    try:
        card = read_file(path, _MOST_BYTES).decode(errors="surrogateescape")
    except UnfitFile as error:
        raise UnusableData(f"{path} {error}") from None
    return card.replace("\r\n", "\n")


def card_bytes(card: str) -> bytes:
    """Return the content of a card's file."""
    return card.encode(errors="surrogateescape")


def write_card(folder: Path, traits: Traits, calibration: VariantCalibration) -> None:
    """Write the figures into the folder's README.md, and create the file if there is none."""
    path = folder / "README.md"
    card = read_card(path) if path.is_file() else _new_card(folder, traits, calibration)
    path.write_bytes(card_bytes(replace_between(card, FIGURES, exit_table(calibration))))


def write_training(folder: Path, description: str) -> None:
    """Write the training section of the card, unless the card has a hand-written one."""
    path = folder / "README.md"
    card = read_card(path)
    if TRAINING[0] not in card:
        if f"\n{TRAINING_HEADING}\n" in card:
            return
        card = f"{card.rstrip()}\n\n{TRAINING_HEADING}\n"
    path.write_bytes(card_bytes(replace_between(card, TRAINING, description)))


def _new_card(folder: Path, traits: Traits, calibration: VariantCalibration) -> str:
    tag, kind = KINDS[traits.task]
    metrics = ", ".join(calibration.exits[0].measured)
    return NEW_CARD.format(tag=tag, kind=kind, metrics=metrics, name=folder.name)


def replace_between(card: str, markers: tuple[str, str], text: str) -> str:
    """Return a card with the text between the markers, which are appended if missing."""
    start, end = markers
    before, _, rest = card.partition(start)
    after = rest.partition(end)[2]
    part = "\n".join([start, "", text, "", end])
    return f"{before.rstrip()}\n\n{part}\n\n{after.strip()}".rstrip() + "\n"


def title(metric: str) -> str:
    """Return a metric's display name."""
    return _TITLES.get(metric, metric)


def unit(metric: str) -> str:
    """Return the unit of a metric that `hundredths` has formatted."""
    return "x 100" if metric in _CORRELATIONS else "%"


def hundredths(value: float, signed: bool = False) -> str:
    """Return a metric, or a difference of two, in hundredths."""
    return f"{100 * value:{'+' if signed else ''}.2f}"


def exit_table(figures: VariantCalibration) -> str:
    """Return Markdown: what was measured on, and a table of the exits."""
    data, metrics = figures.data, figures.exits[0].measured
    rows = [[e.layer, *(hundredths(e.value(m)) for m in metrics)] for e in figures.exits]
    return (
        f"Measured on `{data.name}` ({data.rows} rows, sha256 `{data.sha256[:12]}...`).\n\n"
        + table(["exit layer", *(f"{title(m)} {unit(m)}" for m in metrics)], rows)
    )


# What has become of the texts that a flag's losses count.
LOST: dict[Loss, str] = {
    "missed": "flagged at full depth, missed early",
    "false_alarms": "flagged early, not at full depth",
}


def with_certificates(
    card: str, ladders: Sequence[Ladder], wish: RuleOrTarget | None = None
) -> str:
    """Return a card with its section on certified rules rewritten; without ladders, unchanged.

    Args:
        card: as it is.
        ladders: of the bundle.
        wish: what requests get that ask for nothing; None if that is not known.
    """
    return replace_between(card, CERTIFICATES, certificates(ladders, wish)) if ladders else card


def certificates(ladders: Iterable[Ladder], wish: RuleOrTarget | None = None) -> str:
    """Return Markdown: what the certificates promise, and a table of each ladder's rungs."""
    lines = [
        "## Certified rules",
        "",
        "A certificate bounds what leaving early costs on texts of the same kind as the certifying "
        "texts, for one precision with just these weights and exits. The bound fails to hold with "
        "probability delta. n counts the certifying texts, which did not choose the rules.",
    ]
    if wish:
        said = wish.model_dump_json(exclude_none=True)
        lines += ["", f"By this policy requests without `exit` get `{said}`; its rule is **bold**."]
    for ladder in ladders:
        lines += ["", *_ladder(ladder, wish)]
    return "\n".join(lines)


def _in_use(ladder: Ladder, wish: RuleOrTarget | None) -> Rung | None:
    """Return the rung of a wish; None if it has none, or none but a server's times tell which."""
    if not isinstance(wish, TargetChoice):
        return next((rung for rung in ladder.rungs if rung.rule == wish), None)
    target = wish.target
    if not target.losses or target.speedup or target.max_layers or target.max_ms or target.decides:
        return None
    kept = [
        rung
        for rung in ladder.rungs
        if all(
            (rung.full_depth and loss not in OF_REFERENCE)
            or ((found := rung.certificate(loss)) and found.epsilon <= most)
            for loss, most in target.losses.items()
        )
    ]
    return min(kept, key=ladder.mean_layers, default=None)


def describe_loss(loss: Loss, ladder: Ladder) -> str:
    """Return what a loss is, in words."""
    if loss in LOST:
        return LOST[loss]
    known = ladder.reference if loss in OF_REFERENCE else None
    whose = f"{known.name if known else 'full depth'}'s"
    if loss in ("score", "reference_score"):
        return f"score more than {SCORE_TOLERANCE:g} from {whose}"
    if loss in ("disagreement", "reference"):
        if ladder.tolerance is None:
            return f"other answer than {whose if known else 'at full depth'}"
        return f"value more than {ladder.tolerance:g} from {whose}"
    if ladder.tolerance is None:
        return f"right at full depth, wrong early ({ladder.metric})"
    return f"added error ({ladder.metric})"


def percent(share: float) -> str:
    """Format a bound."""
    return f"{100 * share:g} %"


def flag_text(flag: Mapping[str, float]) -> str:
    """Return a flag in a few words."""
    return ", ".join(f"{label} from {bound:g} on" for label, bound in flag.items())


def flag_grid(ladder: Ladder, decided: Decisions) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table: the mean layers of the fastest rule for each pair of bounds.

    Rows bound what is missed, columns false alarms. The first row and column are of rules that let
    no text leave early on that side.
    """
    missed, alarms = ([None, *flag_bounds(decided, loss)] for loss in LOST)
    head = ["missed, false alarms at most", *map(_at_most, alarms)]
    return head, [[_at_most(m), *(_fastest(ladder, decided, m, a) for a in alarms)] for m in missed]


def flag_bounds(decided: Decisions, loss: Loss) -> list[float]:
    """Return the bounds of a loss that some rule is certified for, ascending."""
    found = (rung.certificate(loss) for rung in decided.rungs)
    return sorted({each.epsilon for each in found if each})


def _at_most(bound: float | None) -> str:
    return "not early" if bound is None else percent(bound)


def _fastest(ladder: Ladder, decided: Decisions, missed: float | None, alarms: float | None) -> str:
    fitting = [
        ladder.mean_layers(rung)
        for rung in decided.rungs
        if _keeps(rung, "missed", missed) and _keeps(rung, "false_alarms", alarms)
    ]
    return f"{min(fitting):.2f}"


def _keeps(rung: Rung, loss: Loss, bound: float | None) -> bool:
    rule, side = rung.rule, None
    if isinstance(rule, DecisionRule):
        side = rule.leave_below if loss == "missed" else rule.leave_above
    certificate = rung.certificate(loss)
    if side is None or bound is None:
        return side is None
    return certificate is not None and certificate.epsilon <= bound


def _ladder(ladder: Ladder, wish: RuleOrTarget | None) -> list[str]:
    used = _in_use(ladder, wish)
    losses: list[Loss] = ["disagreement"]
    losses += ["metric"] if ladder.metric else []
    losses += ["score"] if ladder.score_temperatures else []
    losses += [x for x in OF_REFERENCE if any(rung.certificate(x) for rung in ladder.rungs)]
    files = ", ".join(f"`{d.name}` ({d.rows} texts, sha256 `{d.sha256[:12]}...`)"
                      for d in ladder.data)  # fmt: skip
    rows = [
        [
            f"**{r.rule.text()}**" if r is used else r.rule.text(),
            f"{ladder.mean_layers(r):.2f}",
            *(_promise(r, loss) for loss in losses),
        ]
        for r in ladder.rungs
    ]
    return [
        f"### {ladder.precision}, exits {places_in_words(ladder.layers, ladder.small)}",
        "",
        f"{files}: {ladder.num_tuning} texts chose the rules, {ladder.num_certifying} certify"
        f"{_repeats(ladder)}. "
        f"Temperatures: {', '.join(f'{t:g}' for t in ladder.temperatures)}.",
        "",
        table(["rule", "mean layers", *(describe_loss(loss, ladder) for loss in losses)], rows),
        *(line for own in ladder.decisions for line in _decided(ladder, own)),
    ]


def _repeats(ladder: Ladder) -> str:
    rungs = [*ladder.rungs, *(rung for own in ladder.decisions for rung in own.rungs)]
    found = {each.repeats for rung in rungs for each in rung.certificates}
    return ", each as often as it came" if "count" in found else ", each once" if found else ""


def _promise(rung: Rung, loss: Loss) -> str:
    if rung.full_depth and loss not in OF_REFERENCE:
        return "never"
    found = rung.certificate(loss)
    if found:
        sure = f"delta {found.delta:g}, n {found.n}"
        return f"at most {percent(found.epsilon)} ({sure}), observed {100 * found.observed:.2f} %"
    seen = f", observed {100 * rung.disagreement:.2f} %" if loss == "disagreement" else ""
    return f"no certificate{seen}"


def _decided(ladder: Ladder, own: Decisions) -> list[str]:
    return [
        "",
        f"#### Decisions of the flag {flag_text(own.flag)}",
        "",
        f"Mean layers of the fastest certified rule by how many of the {own.num_flagged} "
        "certifying texts that full depth flags it misses at most, and how many of the other "
        f"{ladder.num_certifying - own.num_flagged} it flags early.",
        "",
        table(*flag_grid(ladder, own)),
    ]
