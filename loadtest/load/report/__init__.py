"""A load test's report: a folder with words, numbers and pictures."""

import json
from pathlib import Path

from loadtest.http.client import Json
from loadtest.load.figures import Figures
from loadtest.load.report.document import document
from loadtest.load.report.page import page
from loadtest.load.report.timeline import timeline


def write_report(figures: Figures, facts: Json, folder: Path) -> Path:
    """Write report.md, report.json and the pictures; return report.md's path.

    Args:
        figures: the run.
        facts: what was run, for the reader: command, date, server, machine.
        folder: made if it is not there.
    """
    # Draws, and so is slow to import.
    from loadtest.load.report.pictures import draw

    folder.mkdir(parents=True, exist_ok=True)
    line = timeline(figures.samples, figures.users, figures.seconds)
    pictures = draw(line, figures, folder)
    found = {"run": facts, **document(figures)}
    (folder / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    path = folder / "report.md"
    path.write_text(page(found, pictures))
    return path
