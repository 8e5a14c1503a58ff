"""The sections of the page, in its order, by the names that the command takes."""

from collections.abc import Mapping

from models.experiments.recipes import (
    RECIPES_MPNET,
    RECIPES_MRPC,
    RECIPES_SST2,
    STAGES_MRPC,
    STAGES_SST2,
)
from models.experiments.reference_curve import REFERENCE
from models.experiments.section import Section
from models.experiments.sections.papers import PAPERS

SECTIONS: Mapping[str, Section] = {
    "recipes-sst2": RECIPES_SST2,
    "recipes-mrpc": RECIPES_MRPC,
    "recipes-mpnet": RECIPES_MPNET,
    "stages-sst2": STAGES_SST2,
    "stages-mrpc": STAGES_MRPC,
    "reference": REFERENCE,
    **PAPERS,
}
