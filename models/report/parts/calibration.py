"""Whether exits are as often right as they are sure."""

from models.evaluation.analysis import Analysis
from models.evaluation.reliability import reliability
from models.report.blocks import Picture, Table, Text
from models.report.parts.part import Part, missing
from models.report.pictures.calibration import draw_reliability
from models.report.style import as_svg
from models.report.wording import hundredths

TITLE = "Calibration"
_DECISIONS = {
    "single_label": "a text's label",
    "multi_label": "each label of a text: given or not",
    "token": "each word's tag",
}


_OF_THE_RULES = (
    "The temperatures are those of the certified rules. With them an exit's confidence is how "
    "likely it is to agree with full depth, not how likely it is to be right."
)


def calibration_part(analysis: Analysis, slug: str) -> Part:
    """Return the calibration curve and its error at every exit."""
    observed = analysis.observed
    task = observed.traits.task
    if task == "regression":
        return missing(TITLE, "a regression gives no probabilities")
    found = reliability(observed)
    lowest = 0.5 if task == "multi_label" else 1 / len(observed.traits.labels)
    picture = Picture(
        f"{slug}-calibration.svg",
        f"Decisions ({_DECISIONS[task]}) by their probability, in bins of 10 points; larger dots "
        "hold more decisions. On the dotted line an exit is right as often as it is sure; below "
        "it, too sure. ECE, the expected calibration error, is the mean distance from the line.",
        as_svg(draw_reliability(found, lowest)),
    )
    blocks: list[Picture | Table | Text] = [picture]
    if set(observed.temperatures) != {1.0}:
        rows = [
            [exit_.layer, temperature, hundredths(exit_.bins.ece), hundredths(exit_.scaled_ece)]
            for exit_, temperature in zip(found, observed.temperatures, strict=True)
        ]
        head = ("exit layer", "temperature", "ECE %", "ECE % at the temperature")
        blocks.append(Table(head, rows))
        if observed.subject.ladder:
            blocks.append(Text(_OF_THE_RULES))
    figures = [
        {"layer": exit_.layer, **exit_.bins._asdict(), "scaled_ece": exit_.scaled_ece}
        for exit_ in found
    ]
    return Part(TITLE, blocks, figures)
