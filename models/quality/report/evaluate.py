"""`offramp evaluate`: from folders and data files to a report's folder."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
import orjson
from rich.console import Console

from models.data.columns import KNOWN, Columns
from models.errors import TrainingFailed
from models.progress import progress
from models.quality.analysis import Analysis, analyse
from models.quality.data import LabelledData, read_for
from models.quality.fonts import fonts_for
from models.quality.model import Model, open_models
from models.quality.page import html_page, markdown_page, pictures_of
from models.quality.recorded import inputs
from models.quality.reference import ReferenceAnswers, open_reference
from models.quality.report.contents import Report, report
from models.quality.report.wording import slug
from models.quality.style import STYLE
from models.staging import FolderKind, check_replaceable, staged
from serve.runtime.hardware import available_threads, cpu_model
from serve.version import __version__

PAGE, WORDS, FIGURES = "report.html", "report.md", "report.json"
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
REPORT = FolderKind("report", FIGURES, TrainingFailed)


@dataclass(frozen=True)
class EvaluationJob:
    """The options of one call of the command, see `models.cli`."""

    models: tuple[Path, ...]
    data: tuple[Path, ...]
    precisions: tuple[str, ...] = ("auto",)
    out: Path | None = None
    texts: tuple[str, ...] = ()
    examples: int = 3
    originals: tuple[Path, ...] = ()
    columns: Columns = KNOWN
    reference: Path | None = None


def evaluate(job: EvaluationJob, console: Console) -> tuple[Path, list[str]]:
    """Measure, and write the report; return its page and a summary.

    Raises:
        OfframpError: something cannot be measured, or the report cannot be written.
    """
    out = job.out or default_folder(job.models)
    check_out(out, [*job.models, *job.originals])
    with console.status("loading the models"):
        models = open_models(job.models, job.precisions, job.originals)
        # Every file is read for every model before any of them is run.
        pairs = [
            (model, path, read_for(path, model.source.traits, job.columns))
            for model in models
            for path in job.data
        ]
        references = [_asked(job, model, file) for model, _, file in pairs]
    analyses = [
        replace(_analysed(*pair, job.texts, console), reference=reference)
        for pair, reference in zip(pairs, references, strict=True)
    ]
    words = "".join(label for model in models for label in model.source.traits.labels)
    with (
        console.status("trying rules and drawing pictures"),
        mpl.rc_context(STYLE),
        fonts_for(words),
    ):
        found = report(analyses, _facts(), job.examples)
    return write_report(found, out), found.summary


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
    """Write the report's folder, whole or not at all; return the page's path."""
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


def _asked(job: EvaluationJob, model: Model, file: LabelledData) -> ReferenceAnswers | None:
    """Return what the reference says of a file, if there is one."""
    if job.reference is None:
        return None
    reference = open_reference(job.reference, model.source.traits, job.columns)
    return reference.ask(inputs(file.examples)[0])


def _analysed(
    model: Model, path: Path, file: LabelledData, texts: Sequence[str], console: Console
) -> Analysis:
    title = f"{model.name} on {path.resolve().parent.name}/{path.name}"
    with progress(console, title, len(file.examples) + len(texts)) as advance:
        return analyse(model, path, file, texts, advance)


def _facts() -> dict[str, str]:
    return {
        "command": f"`{shlex.join(['offramp', *sys.argv[1:]])}`",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{cpu_model()}, {available_threads()} threads",
        "offramp": __version__,
        "intervals": "95 %, from 1,000 bootstrap samples of the rows",
    }
