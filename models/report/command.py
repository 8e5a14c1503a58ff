"""`offramp evaluate`: from folders and data files to a report."""

import shlex
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import matplotlib as mpl
from rich.console import Console

from models.data.columns import KNOWN, Columns
from models.evaluation.measuring import Measured, WorkItem, measure, plan
from models.evaluation.subjects.opening import open_models
from models.progress import progress
from models.report.evaluation import entries_of, report
from models.report.folder import check_out, default_folder, write_report
from models.report.style import STYLE
from serve.runtime.hardware import available_threads, cpu_model
from serve.version import __version__


@dataclass(frozen=True)
class Wish:
    """What is to be measured, and where the report goes.

    Attributes:
        models: bundles, model folders and checkpoints.
        data: labelled files.
        precisions: of bundles.
        out: None for a folder of the first model's name under `evaluation`.
        texts: to be shown through all exits.
        examples: texts of each kind to be shown of the data.
        originals: models that bundles were exported from.
        columns: of the files, those that the user names.
    """

    models: tuple[Path, ...]
    data: tuple[Path, ...]
    precisions: tuple[str, ...] = ("auto",)
    out: Path | None = None
    texts: tuple[str, ...] = ()
    examples: int = 3
    originals: tuple[Path, ...] = ()
    columns: Columns = KNOWN


def run(wish: Wish, console: Console) -> tuple[Path, list[str]]:
    """Measure, and write the report; return its page and a summary.

    Raises:
        OfframpError: something cannot be measured, or the report cannot be written.
    """
    out = wish.out or default_folder(wish.models)
    check_out(out, [*wish.models, *wish.originals])
    with console.status("loading the models"):
        models = open_models(wish.models, wish.precisions, wish.originals)
        items = plan(models, wish.data, wish.texts, wish.columns)
    measured = [_measure(item, console) for item in items]
    with console.status("trying rules and drawing pictures"), mpl.rc_context(STYLE):
        found = report(entries_of(measured), _facts(), wish.examples)
    return write_report(found, out), found.summary


def _measure(item: WorkItem, console: Console) -> Measured:
    title = f"{item.model.subject.name} on {item.data.name}"
    with progress(console, title, len(item.examples)) as advance:
        return measure(item, advance)


def _facts() -> dict[str, str]:
    return {
        "command": f"`{shlex.join(['offramp', *sys.argv[1:]])}`",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{cpu_model()}, {available_threads()} threads",
        "offramp": __version__,
        "intervals": "95 %, from 1,000 bootstrap samples of the rows",
    }
