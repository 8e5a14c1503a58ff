"""The sections of the page, in its order, by the names that the command takes.

A file has the published figures, what is measured, and the text around it. What several share is in
`models.experiments.tried` (rules on a recording) and `models.experiments.figures` (figures with
their intervals, the table and the sentence that show them).
"""

from collections.abc import Mapping

from models.experiments.page import Section
from models.experiments.sections import (
    condition,
    deebert,
    difficulty,
    diversity,
    elasticbert,
    fastbert,
    patience,
    redundancy,
)
from models.experiments.sections.depths import BERXIT, TAGGER
from models.experiments.sections.recipes import RECIPES
from models.experiments.sections.reference import REFERENCE

SECTIONS: Mapping[str, Section] = {
    **RECIPES,
    "reference": REFERENCE,
    "deebert": deebert.SECTION,
    "patience": patience.SECTION,
    "patience-condition": condition.SECTION,
    "diversity": diversity.SECTION,
    "berxit": BERXIT,
    "tagger": TAGGER,
    "fastbert": fastbert.SECTION,
    "elasticbert": elasticbert.SECTION,
    "difficulty": difficulty.SECTION,
    "redundancy": redundancy.SECTION,
}
