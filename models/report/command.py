"""`offramp evaluate`: from folders and data files to a report."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import matplotlib as mpl
from rich.console import Console

from models.data.columns import KNOWN, Columns
from models.progress import progress
from models.quality.analysis import Analysis, analyse
from models.quality.data import LabelledData, read_for
from models.quality.model import Model, open_models
from models.quality.recorded import inputs
from models.quality.reference import ReferenceAnswers, open_reference
from models.report.evaluation import report
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
        reference: a classifier's folder, or a file of its answers, which answers are compared with.
    """

    models: tuple[Path, ...]
    data: tuple[Path, ...]
    precisions: tuple[str, ...] = ("auto",)
    out: Path | None = None
    texts: tuple[str, ...] = ()
    examples: int = 3
    originals: tuple[Path, ...] = ()
    columns: Columns = KNOWN
    reference: Path | None = None


def run(wish: Wish, console: Console) -> tuple[Path, list[str]]:
    """Measure, and write the report; return its page and a summary.

    Raises:
        OfframpError: something cannot be measured, or the report cannot be written.
    """
    out = wish.out or default_folder(wish.models)
    check_out(out, [*wish.models, *wish.originals])
    with console.status("loading the models"):
        models = open_models(wish.models, wish.precisions, wish.originals)
        # Every file is read for every model before any of them is run.
        pairs = [
            (model, path, read_for(path, model.source.traits, wish.columns))
            for model in models
            for path in wish.data
        ]
        references = [_asked(wish, *pair) for pair in pairs]
    analyses = [
        replace(_analysed(*pair, wish.texts, console), reference=reference)
        for pair, reference in zip(pairs, references, strict=True)
    ]
    with console.status("trying rules and drawing pictures"), mpl.rc_context(STYLE):
        found = report(analyses, _facts(), wish.examples)
    return write_report(found, out), found.summary


def _asked(wish: Wish, model: Model, path: Path, file: LabelledData) -> ReferenceAnswers | None:
    """Return what the reference says of a file, if there is one."""
    if wish.reference is None:
        return None
    reference = open_reference(wish.reference, model.source.traits, wish.columns)
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
