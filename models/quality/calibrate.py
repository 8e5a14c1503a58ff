"""`offramp calibrate`: certify the variants of a bundle, and write their ladders into it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from models.data.columns import KNOWN, Columns
from models.errors import TrainingFailed, UnusableData
from models.model_files import CONFIG
from models.model_folder import read_calibration
from models.profiles import backed, changed, with_profiles
from models.progress import progress
from models.quality.certify import Certified, certify, rungs, with_rungs_beside
from models.quality.data import LabelledText, TextFile, distinct, read_file, split, texts_in
from models.quality.flag import certify_flag
from models.quality.losses import losses_of, scale_of
from models.quality.paths import Tried, find_path, of_exits
from models.quality.recorded import Recorded, recorded
from models.quality.reference import ReferenceAnswers, open_reference
from models.quality.source import BundleSource
from models.quality.stored import dropped, repair, store, store_in_model
from models.quality.temperatures import fit_score_temperatures
from models.quality.trained import check_unseen
from models.staging import check_writable
from serve.bundle.loader import Bundle, load_bundle
from serve.classifier.score_map import ScoreMap
from serve.policy.flag import check_flag, problem_of_flag
from serve.policy.ladder import Data, Decisions, Ladder, Repeats
from serve.runtime.placement import Placement, place


@dataclass(frozen=True)
class CalibrationJob:
    """The options of one call of the command, see `models.quality.cli`; None for the default."""

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
    repeats: Repeats = "count"


class Sample(NamedTuple):
    """The texts of a calibration, as all its variants use them.

    Attributes:
        texts: those that tune, then those that certify; with labels all of them or none.
        num_tuning: how many tune.
        data: the files they come from.
        reference: what another classifier says of those that certify; None without one.
    """

    texts: Sequence[LabelledText]
    num_tuning: int
    data: tuple[Data, ...]
    reference: ReferenceAnswers | None = None

    @property
    def num_certifying(self) -> int:
        """How many texts certify."""
        return len(self.texts) - self.num_tuning

    @property
    def firsts(self) -> NDArray[np.intp]:
        """Which of the texts that certify are the first with their tokens."""
        hashes = np.array([each.tokens for each in self.texts[self.num_tuning :]], np.uint64)
        return np.sort(np.unique(hashes, return_index=True)[1])

    def recorded(self, source: BundleSource, console: Console) -> tuple[Recorded, Recorded]:
        """Run the texts through all exits; return those that tune, and those that certify."""
        texts = [each.text for each in self.texts]
        labels = [each.label for each in self.texts if each.label is not None]
        title = f"{source.bundle.name} {source.placement.precision}: running texts"
        with progress(console, title, len(texts)) as advance:
            found = recorded(source, texts, labels or None, advance)
        return found.of(slice(self.num_tuning)), found.of(slice(self.num_tuning, None))


class Calibrated(NamedTuple):
    """One variant: a precision with some exits.

    Attributes:
        ladder: as it is stored.
        certified: what was found out of the path.
        certifying: the texts that certify.
        once: what was found where each text that certifies counts once; None if none of them has
            the tokens of another, or they count once anyhow.
        decisions_once: the same of the flag's decisions.
    """

    ladder: Ladder
    certified: Certified
    certifying: Recorded
    once: Certified | None = None
    decisions_once: Decisions | None = None


def calibrate(job: CalibrationJob, console: Console) -> Iterator[Calibrated]:
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
    sample = sample_texts(job, bundle, console)
    if job.reference:
        reference = open_reference(job.reference, bundle.manifest.traits, job.columns)
        certifying = [each.text for each in sample.texts[sample.num_tuning :]]
        with console.status(f"asking {reference.reference.name}"):
            sample = sample._replace(reference=reference.ask(certifying))
    before, notes = whole.manifest.policy, list[str]()
    policy = with_profiles(whole.manifest, from_reference=job.reference is not None)
    manifest = whole.manifest
    for placement in placements:
        found = certify_variant(BundleSource(bundle, placement), sample, job, console)
        policy = backed(policy, found.ladder)
        manifest = manifest.model_copy(update={"policy": policy})
        whole = store(whole, manifest, found.ladder, found.certifying)
        manifest = whole.manifest
        now = whole.presenting(bundle.manifest.exit_layers).ladder(placement.precision)
        notes += dropped(bundle.ladder(placement.precision), now or found.ladder)
        if job.model:
            store_in_model(job.model, found.ladder, found.certifying)
        yield found
    for note in changed(before, policy, job.reference is not None) + notes:
        _note(console, note)


def certify_variant(
    source: BundleSource, sample: Sample, job: CalibrationJob, console: Console
) -> Calibrated:
    """Record a variant, choose its path on the texts that tune, and certify it on the others.

    Args:
        source: a bundle with the exits that are to be active.
        sample: the texts.
        job: names delta, the tolerance and the flag.
        console: for progress.
    """
    tuning, certifying = sample.recorded(source, console)
    scale = scale_of(tuning, job.tolerance)
    path = find_path(tuning, scale, sample.num_certifying, job.delta)
    scores = fit_score_temperatures(tuning, Tried.of(path, tuning, losses_of(tuning, scale)).exits)
    shown = ScoreMap(scores) if scores else None
    losses = losses_of(certifying, scale, shown, sample.reference)
    tried = Tried.of(path, certifying, losses)
    certified, once, decisions_once = certify(tried, job.delta, job.repeats), None, None
    if job.repeats == "count" and len(firsts := sample.firsts) < sample.num_certifying:
        once = certify(tried.of_texts(firsts), job.delta, "once")
    found, alone = rungs(certified), of_exits(path)
    if alone:  # for requests that may not leave before the first layer
        other = certify(Tried.of(alone, certifying, losses), job.delta, job.repeats)
        found = with_rungs_beside(certified, other)
    decisions = []
    if job.flag:
        traits = replace(tuning.traits, score_temperatures=scores)
        tunes, certifies = replace(tuning, traits=traits), replace(certifying, traits=traits)
        decisions.append(certify_flag(tunes, certifies, job.flag, job.delta, job.repeats))
        if once:
            certifies = certifies.of(sample.firsts)
            decisions_once = certify_flag(tunes, certifies, job.flag, job.delta, "once")
    manifest, precision = source.bundle.manifest, source.placement.precision
    ladder = Ladder(
        precision=precision,
        weights=source.sha256,
        exits=manifest.exit_layers,
        table=manifest.files[manifest.table.file] if manifest.table else None,
        small=manifest.small,
        temperatures=path.temperatures,
        score_temperatures=scores,
        data=sample.data,
        num_tuning=sample.num_tuning,
        num_certifying=sample.num_certifying,
        mean_tokens=float(certifying.num_tokens.mean()),
        metric=losses.metric,
        tolerance=losses.tolerance,
        rungs=found,
        reference=sample.reference.reference if sample.reference else None,
        decisions=tuple(decisions),
    )
    return Calibrated(ladder, certified, certifying, once, decisions_once)


def sample_texts(job: CalibrationJob, bundle: Bundle, console: Console) -> Sample:
    """Read and split the texts of a calibration.

    Raises:
        UnusableData: a file that cannot be read, or too few texts.
    """
    paths = [*job.data, *([job.tuning] if job.tuning else [])]
    read = [read_file(path, bundle, job.labelled, job.columns) for path in paths]
    _check_once(read)
    files, tuning = read[: len(job.data)], read[len(job.data) :]
    if job.repeats == "once":
        num_given, tuning = len(texts_in(files)), distinct(tuning)
        files = distinct(files, texts_in(tuning))
        if num_given > (left := len(texts_in(files))):
            _note(console, f"{num_given} texts, {left} of them distinct: each counts once")
    elif shared := len(
        {each.tokens for each in texts_in(files)} & {t.tokens for t in texts_in(tuning)}
    ):
        _note(
            console,
            f"{shared} texts of --tuning are in --data too, and certify there, as in two draws of "
            "traffic; --repeats once leaves them out",
        )
    texts = texts_in(files)
    tunes, certifies = split(texts, job.tuning_share)
    if job.tuning:
        tunes, certifies = texts_in(tuning), texts
    if not tunes or not certifies:
        raise UnusableData(
            f"{len(texts)} texts are too few: {len(tunes)} to tune, "
            f"{len(certifies)} to certify; 300 that certify allow a bound of 1 %"
        )
    for model in filter(None, (bundle, bundle.small)):
        if remark := check_unseen(model, files, certifies):
            _note(console, remark)
    return Sample([*tunes, *certifies], len(tunes), tuple(f.data for f in (*tuning, *files)))


def _check_once(files: Sequence[TextFile]) -> None:
    """Refuse a file that is given twice: its texts would count as twice as many."""
    seen = dict[str, Path]()
    for file in files:
        if other := seen.get(file.data.sha256):
            raise UnusableData(f"{file.path} is {other} again: give each text once")
        seen[file.data.sha256] = file.path


def _check(job: CalibrationJob, bundle: Bundle) -> None:
    if len(bundle.manifest.traits.layers) < 2:
        raise TrainingFailed(
            f"{bundle.name} has a single exit: no text can leave early; `--small` puts a small "
            "model in front of it"
        )
    check_writable(bundle.folder, TrainingFailed)
    if job.model:
        check_writable(job.model, TrainingFailed)
        if not (job.model / CONFIG).is_file():
            raise TrainingFailed(f"{job.model} is no model folder: {CONFIG} is missing")
        read_calibration(job.model)
    if job.flag:
        check_flag(job.flag, bundle.manifest.traits)
        if problem := problem_of_flag(job.flag, bundle.manifest.traits):
            raise TrainingFailed(problem)


FP16_ON_CPU = (
    "fp16 is certified as a CPU computes it, and a GPU rounds otherwise: on an H100 one of 2,693 "
    "sentences left at another layer"
)


def _placements(job: CalibrationJob, bundle: Bundle, console: Console) -> list[Placement]:
    wanted = job.precisions or tuple(bundle.manifest.variants)
    placements = [place(bundle, job.device, precision) for precision in wanted]
    if Placement("cpu", "fp16") in placements:
        _note(console, FP16_ON_CPU)
    return placements


def _note(console: Console, text: str) -> None:
    console.print(f"note: {text}", soft_wrap=True, highlight=False)
