"""The load test's report: a folder with a page, a JSON document and Locust's charts."""

import json
from pathlib import Path

from loadtest.http.client import Json
from loadtest.load.figures import Figures
from loadtest.load.report.document import document
from loadtest.load.report.page import page, summary


def write_report(figures: Figures, facts: Json, folder: Path) -> tuple[Path, str]:
    """Write report.md, report.json and charts.html; return report.md's path and a summary.

    Args:
        figures: the run.
        facts: what was run: command, date, server, machine.
        folder: made if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = {"run": facts, **document(figures)}
    (folder / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "charts.html").write_text(figures.charts)
    path = folder / "report.md"
    path.write_text(page(found, figures.ramp))
    return path, summary(found, figures.ramp)
