"""Agreement between exits."""

from models.evaluation.analysis import Analysis
from models.evaluation.exit_agreement import exit_agreement
from models.report.blocks import Picture
from models.report.parts.part import Part, missing
from models.report.pictures.agreement import draw_agreement
from models.report.style import as_svg

TITLE = "Agreement between exits"
_CAPTIONS = {
    "single_label": "Share of texts that get the same label from two exits, in percent.",
    "multi_label": "Share of texts that get the same set of labels from two exits, in percent.",
    "token": "Share of texts in which two exits find the same entities, in percent.",
    "regression": "Pearson correlation of two exits' values, times 100: values are never quite "
    "the same.",
}


def agreement_part(analysis: Analysis, slug: str) -> Part:
    """Return the matrix."""
    observed = analysis.observed
    if len(observed.traits.exits) < 2:
        return missing(TITLE, "the model has a single exit")
    found = exit_agreement(observed)
    caption = _CAPTIONS[observed.traits.task]
    picture = Picture(f"{slug}-agreement.svg", caption, as_svg(draw_agreement(found)))
    return Part(TITLE, [picture], found._asdict())
