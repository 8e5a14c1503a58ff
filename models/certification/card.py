"""Certified rules as a section of a bundle's or a model's card."""

from collections.abc import Iterable, Sequence

from models.certification.flag_words import LOST, grid, percent, written
from models.quality.card import replace_between
from models.report.markdown import table
from serve.policy.ladder import OF_REFERENCE, SCORE_TOLERANCE, Decisions, Ladder, Loss, Rung

MARKERS = ("<!-- certificates: written by offramp -->", "<!-- end of certificates -->")


def with_certificates(card: str, ladders: Sequence[Ladder]) -> str:
    """Return a card with its section on certified rules rewritten; without ladders, unchanged."""
    return replace_between(card, MARKERS, certificates(ladders)) if ladders else card


def certificates(ladders: Iterable[Ladder]) -> str:
    """Return Markdown: what the certificates promise, and a table of each ladder's rungs."""
    lines = [
        "## Certified rules",
        "",
        "A certificate bounds what leaving early costs on texts of the same kind as the certifying "
        "texts, for one precision with just these weights and exits. The bound fails to hold with "
        "probability delta. n counts the certifying texts, which did not choose the rules.",
    ]
    for ladder in ladders:
        lines += ["", *_ladder(ladder)]
    return "\n".join(lines)


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


def _decided(ladder: Ladder, own: Decisions) -> list[str]:
    return [
        "",
        f"#### Decisions of the flag {written(own.flag)}",
        "",
        f"Mean layers of the fastest certified rule by how many of the {own.num_flagged} "
        "certifying texts that full depth flags it misses at most, and how many of the other "
        f"{ladder.num_certifying - own.num_flagged} it flags early.",
        "",
        table(*grid(ladder, own)),
    ]


def _ladder(ladder: Ladder) -> list[str]:
    losses: list[Loss] = ["disagreement"]
    losses += ["metric"] if ladder.metric else []
    losses += ["score"] if ladder.score_temperatures else []
    losses += [x for x in OF_REFERENCE if any(rung.certificate(x) for rung in ladder.rungs)]
    files = ", ".join(f"`{d.name}` ({d.rows} texts, sha256 `{d.sha256[:12]}...`)"
                      for d in ladder.data)  # fmt: skip
    rows = [
        [r.rule.text(), f"{ladder.mean_layers(r):.2f}", *(_promise(r, loss) for loss in losses)]
        for r in ladder.rungs
    ]
    return [
        f"### {ladder.precision}, exits {', '.join(map(str, ladder.exits))}",
        "",
        f"{files}: {ladder.num_tuning} texts chose the rules, {ladder.num_certifying} certify. "
        f"Temperatures: {', '.join(f'{t:g}' for t in ladder.temperatures)}.",
        "",
        table(["rule", "mean layers", *(describe_loss(loss, ladder) for loss in losses)], rows),
        *(line for own in ladder.decisions for line in _decided(ladder, own)),
    ]


def _promise(rung: Rung, loss: Loss) -> str:
    if rung.full_depth and loss not in OF_REFERENCE:
        return "never"
    found = rung.certificate(loss)
    if found:
        sure = f"delta {found.delta:g}, n {found.n}"
        return f"at most {percent(found.epsilon)} ({sure}), observed {100 * found.observed:.2f} %"
    seen = f", observed {100 * rung.disagreement:.2f} %" if loss == "disagreement" else ""
    return f"no certificate{seen}"
