"""The model card: a README.md whose figures are written by the evaluation.

Only the part between the two markers is generated; whatever stands around it in an
existing card is kept, so that hand-written sections survive a new training run.
"""

from pathlib import Path

from serve.calibration import OperatingPoint, VariantCalibration
from serve.policy import Policy
from serve.rules import EntropyRule

START, END = "<!-- figures: written by offramp -->", "<!-- end of figures -->"

FRONT_MATTER = """---
library_name: transformers
pipeline_tag: text-classification
tags: [early-exit, text-classification, offramp]
metrics: [accuracy]
---

# {name}

A text classifier that may answer after any of several layers, trained with `offramp train`.

{figures}
"""


def write_card(folder: Path, calibration: VariantCalibration, policy: Policy) -> None:
    """Write the figures into the folder's README.md, starting a card if there is none."""
    figures = "\n".join([START, "", render_figures(calibration, policy), "", END])
    path = folder / "README.md"
    if not path.is_file():
        path.write_text(FRONT_MATTER.format(name=folder.name, figures=figures), "utf-8")
        return
    card = path.read_text("utf-8")
    before, _, rest = card.partition(START)
    after = rest.partition(END)[2]
    path.write_text(f"{before.rstrip()}\n\n{figures}\n\n{after.strip()}".rstrip() + "\n", "utf-8")


def render_figures(calibration: VariantCalibration, policy: Policy) -> str:
    """Return Markdown: where the figures come from, accuracy per exit, the rules' table."""
    data = calibration.data
    return "\n".join(
        [
            f"Measured on `{data.name}` ({data.rows} rows, sha256 `{data.sha256[:12]}...`).",
            "",
            "| exit layer | accuracy % |",
            "| ---: | ---: |",
            *(f"| {e.layer} | {100 * e.accuracy:.2f} |" for e in calibration.exits),
            "",
            "| exit rule | accuracy % | agreement with the last exit % | mean exit layer |",
            "| --- | ---: | ---: | ---: |",
            *(_line(point, policy) for point in calibration.operating_points),
        ]
    )


def _line(point: OperatingPoint, policy: Policy) -> str:
    names = [f"**{name}**" for name, rule in policy.profiles.items() if rule == point.rule]
    cells = [
        " ".join([_describe(point), *names]),
        f"{100 * point.accuracy:.2f}",
        f"{100 * point.agreement:.2f}",
        f"{point.mean_exit_layer:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def _describe(point: OperatingPoint) -> str:
    rule = point.rule
    if isinstance(rule, EntropyRule):
        return f"entropy < {rule.threshold:.2f}"
    return " ".join(
        f"{k} {v}" for k, v in rule.model_dump(exclude_none=True).items() if k != "rule"
    )
