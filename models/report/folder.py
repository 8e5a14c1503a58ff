"""Writing a report's folder, whole or not at all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from models.errors import TrainingFailed
from models.report.evaluation import Report
from models.report.html import html_page
from models.report.markdown import markdown_page, pictures_of
from models.report.wording import slug
from models.staging import FolderKind, check_replaceable, staged

PAGE, WORDS, FIGURES = "report.html", "report.md", "report.json"
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
REPORT = FolderKind("report", FIGURES, TrainingFailed)


def default_folder(models: Sequence[Path]) -> Path:
    """Return where the report of these models goes."""
    first, *others = [path.resolve().name for path in models]
    return Path("evaluation") / slug(f"{first} and {len(others)} more" if others else first)


def check_out(out: Path, models: Sequence[Path]) -> None:
    """Raise unless the report can be written there without touching what is measured."""
    for model in models:
        if out.resolve().is_relative_to(model.resolve()):
            raise TrainingFailed(
                f"--out {out} lies in {model}, which is only read: choose another place"
            )
    check_replaceable(out, REPORT)


def write_report(report: Report, out: Path) -> Path:
    """Write page, words, figures and pictures; return the page's path."""
    with staged(out, REPORT) as folder:
        (folder / PAGE).write_text(html_page(report.page), "utf-8")
        (folder / WORDS).write_text(markdown_page(report.page), "utf-8")
        # What is no number becomes null.
        (folder / FIGURES).write_bytes(orjson.dumps(report.figures, _plain, _OPTIONS))
        for picture in pictures_of(report.page):
            (folder / picture.file).write_bytes(picture.svg)
    return out / PAGE


def _plain(value: Any) -> Any:
    """Return what JSON has for named tuples and arrays."""
    return value._asdict() if hasattr(value, "_asdict") else value.tolist()
