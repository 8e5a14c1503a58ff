"""`offramp calibrate`: certify the variants of a bundle, and write their ladders into it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from models.certification.bundle_files import repair
from models.certification.path_choice import Terms
from models.certification.policy import with_profiles
from models.certification.stored import dropped, store, store_in_model
from models.certification.texts import distinct, read_file, split, texts_in
from models.certification.variant import Sample, VariantLadder, certify_variant
from models.data.columns import KNOWN, Columns
from models.errors import TrainingFailed, UnusableData
from models.model_files import CONFIG
from models.model_folder import read_calibration
from models.quality.reference import open_reference
from models.quality.source import BundleSource
from serve.bundle.loader import Bundle, load_bundle
from serve.policy.flag import check_flag, problem_of_flag
from serve.runtime.placement import Placement, place


@dataclass(frozen=True)
class CalibrationJob:
    """One call of the command.

    Attributes:
        bundle: the bundle's folder.
        data: files of texts.
        tuning: a file whose texts tune, so that all texts of `data` certify; None for a split.
        labelled: whether the files have labels to be used.
        delta: probability that a bound does not hold.
        tuning_share: of the texts that tune, without `tuning`.
        tolerance: of a regression: values further apart disagree. None for the default.
        precisions: to certify; None for all that can run here.
        exits: layers that are to be active; None for all.
        device: auto, cpu or cuda.
        model: a model folder that gets the ladders too.
        columns: of the files, those that the user names.
        flag: thresholds by label, whose decisions are certified too; None for none.
        reference: a classifier's folder, or a file of its answers, which answers are compared with.
    """

    bundle: Path
    data: tuple[Path, ...]
    tuning: Path | None = None
    labelled: bool = True
    delta: float = 0.05
    tuning_share: float = 1 / 3
    tolerance: float | None = None
    precisions: tuple[str, ...] | None = None
    exits: tuple[int, ...] | None = None
    device: str = "auto"
    model: Path | None = None
    columns: Columns = KNOWN
    flag: Mapping[str, float] | None = None
    reference: Path | None = None


def calibrate(job: CalibrationJob, console: Console) -> Iterator[VariantLadder]:
    """Certify one variant after the other, each written before the next begins.

    Args:
        job: what to do.
        console: for progress and remarks.

    Raises:
        OfframpError: bundle, data or options that cannot be used; nothing was written.
    """
    if repair(job.bundle):
        _note(console, "the manifest was older than the calibration, and was brought up to date")
    whole = load_bundle(job.bundle)
    bundle = whole.presenting(job.exits or whole.manifest.exit_layers)
    _check(job, bundle)
    placements = _placements(job, bundle, console)
    sample = _asked(job, bundle, sample_texts(job, bundle, console), console)
    terms = Terms(sample.num_certifying, job.delta)
    policy, notes = with_profiles(whole.manifest)
    manifest = whole.manifest.model_copy(update={"policy": policy})
    for placement in placements:
        source = BundleSource(bundle, placement)
        found = certify_variant(source, sample, terms, job.tolerance, console)
        found = found.deciding(job.flag)
        whole = store(whole, manifest, found.ladder, found.sides.certifying)
        manifest = whole.manifest
        now = whole.presenting(bundle.manifest.exit_layers).ladder(placement.precision)
        notes += dropped(bundle.ladder(placement.precision), now or found.ladder)
        if job.model:
            store_in_model(job.model, found.ladder, found.sides.certifying)
        yield found
    for note in notes:
        _note(console, note)


def sample_texts(job: CalibrationJob, bundle: Bundle, console: Console) -> Sample:
    """Read and split the texts of a calibration.

    Raises:
        UnusableData: a file that cannot be read, or too few texts.
    """
    paths = [*job.data, *([job.tuning] if job.tuning else [])]
    read = [read_file(path, bundle.manifest, job.labelled, job.columns) for path in paths]
    given, tuning = read[: len(job.data)], distinct(read[len(job.data) :])
    files = distinct(given, texts_in(tuning))
    num_given, texts = len(texts_in(given)), texts_in(files)
    if num_given > len(texts):
        _note(console, f"{num_given} texts, {len(texts)} of them distinct: each counts once")
    tunes, certifies = split(texts, job.tuning_share)
    if job.tuning:
        tunes, certifies = texts_in(tuning), texts
    if not tunes or not certifies:
        raise UnusableData(
            f"{len(texts)} distinct texts are too few: {len(tunes)} to tune, "
            f"{len(certifies)} to certify; 300 that certify allow a bound of 1 %"
        )
    return Sample([*tunes, *certifies], len(tunes), tuple(f.data for f in (*tuning, *files)))


def _asked(job: CalibrationJob, bundle: Bundle, sample: Sample, console: Console) -> Sample:
    """Return the sample with what the reference says of the texts that certify, if there is one."""
    if job.reference is None:
        return sample
    reference = open_reference(job.reference, bundle.manifest.traits, job.columns)
    with console.status(f"asking {reference.reference.name}"):
        return sample._replace(reference=reference.ask(sample.certifying))


def _check(job: CalibrationJob, bundle: Bundle) -> None:
    if len(bundle.manifest.exits) < 2:
        raise TrainingFailed(f"{bundle.name} has a single exit: no text can leave early")
    if job.model:
        if not (job.model / CONFIG).is_file():
            raise TrainingFailed(f"{job.model} is no model folder: {CONFIG} is missing")
        read_calibration(job.model)
    if job.flag:
        check_flag(job.flag, bundle.manifest.traits)
        if problem := problem_of_flag(job.flag, bundle.manifest.traits):
            raise TrainingFailed(problem)


def _placements(job: CalibrationJob, bundle: Bundle, console: Console) -> list[Placement]:
    wanted = job.precisions or tuple(bundle.manifest.variants)
    placements = [place(bundle, job.device, precision) for precision in wanted]
    on_cpu = [p for p in placements if p == Placement("cpu", "fp16")]
    if on_cpu == placements:
        raise TrainingFailed(f"{bundle.name}: fp16 runs on a GPU, and there is none here")
    if on_cpu:
        _note(console, "fp16 is left out: it runs on a GPU, and there is none here")
    return [placement for placement in placements if placement not in on_cpu]


def _note(console: Console, text: str) -> None:
    console.print(f"note: {text}", soft_wrap=True, highlight=False)
