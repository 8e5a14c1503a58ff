"""What papers report, measured again on our own models: a file for each section.

A file has the published figures, what is measured, and the text around it. What several share is in
`tried.py` (rules tried on a recording), `sampled.py` (a figure with its interval), `models.py` (the
models that they are about) and `turns.py` (times).
"""

from collections.abc import Mapping

from models.experiments.section import Section
from models.experiments.sections import (
    berxit,
    deebert,
    difficulty,
    diversity,
    elasticbert,
    fastbert,
    patience,
    patience_condition,
    redundancy,
)

PAPERS: Mapping[str, Section] = {
    "deebert": deebert.SECTION,
    "patience": patience.SECTION,
    "patience-condition": patience_condition.SECTION,
    "diversity": diversity.SECTION,
    "berxit": berxit.SECTION,
    "fastbert": fastbert.SECTION,
    "elasticbert": elasticbert.SECTION,
    "difficulty": difficulty.SECTION,
    "redundancy": redundancy.SECTION,
}
