"""`offramp predict`: from a model and a data file to a file of predictions."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rich.console import Console

from models.data.columns import KNOWN, Columns
from models.data.unlabelled import each_text
from models.prediction.formats import FormatName, format_of
from models.prediction.opening import OpenModel, open_model
from models.prediction.output import Output, check_out
from models.prediction.predictor import Predictor
from models.progress import progress
from models.training.stop_request import stop_on_signal
from serve.bundle.loader import sha256_of
from serve.policy.document import ExitChoice
from serve.tokenization.tokenizer import Text

# Texts that are answered, and written, together: similar lengths among them share batches.
BLOCK = 512


@dataclass(frozen=True)
class PredictionJob:
    """What is to be predicted, and where it goes.

    Attributes:
        model: a bundle, a model folder or a checkpoint.
        data: texts, with labels or without.
        out: the file to write.
        exit: a rule, a target, or a profile's name; None for the policy's default.
        format: of the file.
        precision: of a bundle.
        original: the model that a bundle was exported from.
        columns: of the data, those that the user names.
        resume: whether to go on where a stopped run ended.
    """

    model: Path
    data: Path
    out: Path
    exit: ExitChoice | None = None
    format: FormatName = "tsv"
    precision: str = "auto"
    original: Path | None = None
    columns: Columns = KNOWN
    resume: bool = False


def predict(job: PredictionJob, console: Console) -> bool:
    """Write the predictions; return False if the user has stopped the run.

    Raises:
        OfframpError: the model or the data cannot be used, or the file cannot be written.
    """
    check_out(job.out, job.data, job.model)
    with console.status("reading the data"):
        total = sum(1 for _ in each_text(job.data, job.columns))
    with console.status("loading the model"):
        model = open_model(job.model, job.exit, job.precision, job.original)
    form = format_of(job.format, model.shape.traits, model.width)
    output = Output(job.out, _fingerprint(job, model), form.header, job.resume)
    predictor, texts = Predictor(model), _texts(job, output.done.texts)
    title = f"predicting {job.data.name}"
    with (
        stop_on_signal() as stop,
        progress(console, title, total, done=output.done.texts) as advance,
    ):
        while block := list(islice(texts, BLOCK)):
            if stop.requested:
                return False
            first = output.done.texts
            found = predictor.predict(block, first)
            lines = (form.line(first + place, each) for place, each in enumerate(found))
            try:
                output.add(lines, sum(each.layers for each in found))
            except OSError as error:
                error.add_note(f"{output.done.texts} texts are kept: --resume goes on")
                raise
            advance(len(block))
    output.finish()
    _summarize(output, model, console)
    return True


def _texts(job: PredictionJob, done: int) -> Iterator[Text]:
    return islice(each_text(job.data, job.columns), done, None)


def _fingerprint(job: PredictionJob, model: OpenModel) -> str:
    """Return the hash of all that the lines depend on."""
    parts = (
        model.identity,
        sha256_of(job.data),
        repr(model.shape.traits),
        model.rule.rule.model_dump_json(),
        job.format,
        str(model.flops is not None),
        repr(job.columns),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _summarize(output: Output, model: OpenModel, console: Console) -> None:
    done, layers = output.done, model.shape.exits[-1]
    console.print(
        f"{done.texts:,} text{'s' if done.texts > 1 else ''} ran "
        f"{done.layers / done.texts:.2f} of {layers} layers in the mean, "
        f"by the rule {model.rule.rule.text()}",
        soft_wrap=True,
        highlight=False,
    )
