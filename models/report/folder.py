"""Writing a report's folder, whole or not at all."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from models.errors import TrainingFailed
from models.report.blocks import pictures_of
from models.report.evaluation import Report
from models.report.html import html_page
from models.report.markdown import markdown_page
from models.report.slugs import slug
from models.staging import FolderKind, check_replaceable, staged

PAGE, WORDS, FIGURES = "report.html", "report.md", "report.json"
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
        figures = json.dumps(_plain(report.figures), indent=1, ensure_ascii=False, allow_nan=False)
        (folder / FIGURES).write_text(figures + "\n", "utf-8")
        for picture in pictures_of(report.page):
            (folder / picture.file).write_bytes(picture.svg)
    return out / PAGE


def _plain(value: Any) -> Any:
    """Return figures as JSON has them; what is no number becomes null."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
