"""Certificates in the table of rules."""

from models.certification.card import describe_loss
from models.evaluation.analysis import Analysis
from models.evaluation.operating_points import Point
from models.report.blocks import Text
from serve.policy.ladder import Certificate, Ladder, Loss


def certified_losses(analysis: Analysis) -> dict[Loss, str]:
    """Return the losses that the ladder's certificates bound, with the titles of their columns."""
    ladder = analysis.observed.subject.ladder
    losses = sorted({c.loss for c in _certificates(ladder)})
    return {loss: f"certified %: {describe_loss(loss, ladder)}" for loss in losses if ladder}


def bound(point: Point, loss: Loss) -> str | None:
    """Return the bound of a point's certificate in percent, if it has one."""
    found = next((c for c in point.certificates if c.loss == loss), None)
    return f"{100 * found.epsilon:g}" if found else None


def terms(analysis: Analysis) -> list[Text]:
    """Return how sure the certificates are."""
    certificates = _certificates(analysis.observed.subject.ladder)
    if not certificates:
        return []
    listed = ", ".join(dict.fromkeys(f"delta {c.delta:g} and n {c.n}" for c in certificates))
    return [
        Text(
            "What is certified is the largest share on new texts of the same kind. The "
            f"certificates have {listed}: n texts certified each bound, which fails to hold with "
            "probability delta. Rules without a certificate promise nothing."
        )
    ]


def _certificates(ladder: Ladder | None) -> list[Certificate]:
    return [c for rung in ladder.rungs for c in rung.certificates] if ladder else []
