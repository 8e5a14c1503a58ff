"""The load test's report: a folder with a page, a JSON document and pictures."""

import json
from pathlib import Path

from loadtest.http.client import Json
from loadtest.load.figures import Figures
from loadtest.load.report.document import document
from loadtest.load.report.page import page, summary
from loadtest.load.report.timeline import timeline


def write_report(figures: Figures, facts: Json, folder: Path) -> tuple[Path, str]:
    """Write report.md, report.json and the pictures; return report.md's path and a summary.

    Args:
        figures: the run.
        facts: what was run: command, date, server, machine.
        folder: made if it does not exist.
    """
    # Slow to import.
    from loadtest.load.report.pictures import draw

    folder.mkdir(parents=True, exist_ok=True)
    pictures = draw(timeline(figures.samples, figures.users, figures.seconds), figures, folder)
    found = {"run": facts, **document(figures)}
    (folder / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    path = folder / "report.md"
    path.write_text(page(found, figures.ramp, pictures))
    return path, summary(found, figures.ramp)
