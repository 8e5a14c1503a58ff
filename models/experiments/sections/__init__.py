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
    fastbert,
    redundancy,
)
from models.experiments.sections.depths import BERXIT, TAGGER
from models.experiments.sections.elue import ELASTICBERT, REFERENCE
from models.experiments.sections.patience import DIVERSITY, PATIENT
from models.experiments.sections.recipes import RECIPES

SECTIONS: Mapping[str, Section] = {
    **RECIPES,
    "reference": REFERENCE,
    "deebert": deebert.SECTION,
    "patience": PATIENT,
    "patience-condition": condition.SECTION,
    "diversity": DIVERSITY,
    "berxit": BERXIT,
    "tagger": TAGGER,
    "fastbert": fastbert.SECTION,
    "elasticbert": ELASTICBERT,
    "difficulty": difficulty.SECTION,
    "redundancy": redundancy.SECTION,
}
