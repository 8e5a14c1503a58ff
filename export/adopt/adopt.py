"""The steps of `offramp adopt`, each of which another call of the command may find done."""

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from export.adopt.texts import Parts, read, split, write_answers, write_texts
from export.bundle import plan, write
from export.bundle_folder import BUNDLE
from export.errors import ExportFailed
from models.checkpoints import LoadedCheckpoint, load
from models.data.columns import KNOWN, Columns
from models.errors import TrainingFailed
from models.progress import progress
from models.quality.calibrate import CalibrationJob, calibrate
from models.quality.data import token_hashes
from models.quality.recorded import recorded
from models.quality.source import TorchSource
from models.quality.stored import store_policy
from models.staging import check_replaceable
from models.table.add import add_table
from models.table.learn import HELD_OUT
from models.table.teach import why_none
from models.training.device import available, has_bf16
from models.training.job import FROZEN, ModelChoice, TrainConfig, TrainJob, default_lr
from models.training.objective import Objective
from models.training.options import CHECKPOINT
from models.training.train import train
from serve.bounded_file import read_file
from serve.bundle.loader import MANIFEST, load_bundle, sha256_of
from serve.bundle.manifest import Precision
from serve.policy.target import Target, TargetChoice
from serve.runtime.hardware import available_threads

EPOCHS = 2
# Longer texts are cut while the exits are trained; the bundle takes all that the classifier takes.
MAX_TRAINED_TOKENS = 512
_STATE, _MOST_STATE = "adopt.json", 1 << 16
CALIBRATING = "calibrating.jsonl"
_SAMPLE_TEXTS = 64
# Times in those of the classifier for the same texts, as MiniLM-L6 took them on two cores.
_TRAINING, _CALIBRATING = 1.0, 1.4
_EXPORT_S_PER_PARAMETER = 1.2e-6
_TABLE_S = 25


@dataclass(frozen=True)
class Adoption:
    """One call of the command.

    Attributes:
        classifier: a checkpoint that `offramp export` takes.
        texts: files of texts, with labels or without.
        out: the bundle's folder.
        columns: of the files, those that the user names.
    """

    classifier: Path
    texts: tuple[Path, ...]
    out: Path
    columns: Columns = KNOWN

    @property
    def work(self) -> Path:
        """The folder beside the bundle for the parts of the texts and the model with exits."""
        out = self.out.resolve()  # `.` has no name
        return out.with_name(f"{out.name}.adopt")


class Step(NamedTuple):
    """One step.

    Attributes:
        name: unique, for the record of what is done.
        title: what it does, for the user.
        seconds: about how long it takes.
        run: does it; what it leaves is whole, or made anew by the next call.
    """

    name: str
    title: str
    seconds: float
    run: Callable[[Console], None]


def steps(job: Adoption, console: Console) -> list[Step]:
    """Read classifier and texts, and return the steps that make the bundle, with their times.

    Raises:
        OfframpError: they cannot be used, or `out` or the folder beside it is of another run.
    """
    if (job.classifier / MANIFEST).is_file():
        raise TrainingFailed(
            f"{job.classifier} is a bundle already: `offramp calibrate` certifies its exits"
        )
    check_replaceable(job.out, BUNDLE)
    busy, cores = os.getloadavg()[0], available_threads()  # before this run's own work
    with console.status("reading the texts"):
        texts = read(job.texts, job.columns)
    with console.status("reading the classifier, and the texts as its tokens"):
        loaded = load(job.classifier)
        tokens = TorchSource(loaded.model, loaded.tokenizer, _trained_tokens(loaded)).read(texts)
        parts = split(texts, token_hashes(tokens))
        _check_unchanged(job)
    with console.status("timing the classifier"):
        found = _steps(job, loaded, parts)
    if busy > cores / 2:
        console.print(
            f"note: this machine is busy (load average {busy:.1f} on {cores} cores), and times are "
            "as of now: shorter when it is idle",
            highlight=False,
        )
    return found


def print_plan(job: Adoption, planned: list[Step], console: Console) -> None:
    """Say how long the steps take that no earlier call has finished."""
    _, done = _read(job)
    left = [step for step in planned if step.name not in done]
    if left:
        total = duration(sum(step.seconds for step in left))
        console.print(f"about {total} on this machine:", highlight=False)
    for step in left:
        console.print(f"  {duration(step.seconds):>6}  {step.title}", highlight=False, markup=False)


def make_default(job: Adoption, target: Target) -> None:
    """Let requests without a wish of their own get this target, or the profile that says so."""
    bundle, choice = load_bundle(job.out), TargetChoice(target=target)
    policy = bundle.manifest.policy
    named = (name for name, each in policy.profiles.items() if each == choice)
    store_policy(bundle, policy.model_copy(update={"default": next(named, choice)}))


def run(job: Adoption, planned: list[Step], console: Console) -> None:
    """Run the steps that no earlier call has finished.

    Raises:
        KeyboardInterrupt: the user stopped it; another call continues.
        OfframpError: a step failed.
    """
    _, done = _read(job)
    for number, step in enumerate(planned, 1):
        heading = f"[{number}/{len(planned)}] {step.title}"
        if step.name in done:
            console.print(f"{heading}: done before", highlight=False, markup=False)
            continue
        console.print(heading, highlight=False, markup=False)
        began_s = time.monotonic()
        step.run(console)
        done.append(step.name)
        _record(job, done)
        took = duration(time.monotonic() - began_s)
        console.print(f"      took {took}", highlight=False)


def duration(seconds: float) -> str:
    """Return a time as people say it: `40 s`, `6 min`, `1.5 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _steps(job: Adoption, loaded: LoadedCheckpoint, parts: Parts) -> list[Step]:
    model = loaded.model
    source = TorchSource(model, loaded.tokenizer, loaded.max_tokens)
    has_exits = len(model.exits) > 1
    text_s = _seconds_per_text(source, parts)
    num_teaching, num_measuring, num_calibrating = map(len, parts)
    num_parameters = sum(each.numel() for each in model.parameters())
    work = job.work
    answers = work / f"answers-of-{job.classifier.resolve().name}.jsonl"

    def divide(_: Console) -> None:
        write_texts(work / "teaching.jsonl", parts.teaching)
        write_texts(work / CALIBRATING, parts.calibrating)
        write_answers(answers, source, parts.measuring)

    def teach(console: Console) -> None:
        _train(job, loaded, answers, console)

    def make(console: Console) -> None:
        _export(job, job.classifier if has_exits else _model(job), console)

    def tabulate(console: Console) -> None:
        add_table(job.out, [work / "teaching.jsonl"], console)

    def certify(console: Console) -> None:
        calibration = CalibrationJob(
            job.out,
            (work / CALIBRATING,),
            labelled=False,
            reference=job.classifier,
        )
        for _ in calibrate(calibration, console):
            pass

    divided = Step(
        "divide",
        f"divide the texts: {num_teaching:,} teach, {num_measuring:,} measure, "
        f"{num_calibrating:,} choose and certify rules",
        text_s * num_measuring + 1,
        divide,
    )
    taught = Step(
        "teach",
        f"teach {model.exits[-1] - 1} earlier exits what the classifier answers; "
        "its layers stay as they are",
        text_s * ((_TRAINING * EPOCHS + 1) * num_teaching + (EPOCHS + 1) * num_measuring)
        + _TABLE_S,
        teach,
    )
    made = Step(
        "export",
        f"export to {', '.join(_precisions())}, and compare with transformers",
        5 + _EXPORT_S_PER_PARAMETER * num_parameters * len(_precisions()),
        make,
    )
    tabled = Step(
        "table",
        "teach a table what the classifier answers",
        text_s * num_teaching + _TABLE_S,
        tabulate,
    )
    certified = Step(
        "certify",
        "choose rules, and certify how often they answer otherwise than the classifier",
        text_s * _CALIBRATING * num_calibrating,
        certify,
    )
    # With the exits a table is taught too.
    can_have = has_exits and not why_none(source, model.config.vocab_size)
    taught_apart = [tabled] if can_have and num_teaching >= HELD_OUT else []
    return [divided, *([] if has_exits else [taught]), made, *taught_apart, certified]


def _train(job: Adoption, loaded: LoadedCheckpoint, answers: Path, console: Console) -> None:
    device, out = available("auto"), _model(job)
    choice = ModelChoice(
        encoder=job.classifier,
        recipe=FROZEN,
        objective=Objective(unlabelled=True),
        max_tokens=_trained_tokens(loaded),
    )
    config = TrainConfig(epochs=EPOCHS, lr=default_lr(FROZEN), bf16=has_bf16(device))
    texts, resume = job.work / "teaching.jsonl", (out / CHECKPOINT).is_file()
    training = TrainJob(
        choice,
        config,
        texts,
        answers,
        out,
        resume=resume,
        device=device,
        answered_by=job.classifier.resolve().name,
    )
    if not train(training, console):
        raise KeyboardInterrupt


def _trained_tokens(loaded: LoadedCheckpoint) -> int:
    return min(loaded.max_tokens, MAX_TRAINED_TOKENS)


def _model(job: Adoption) -> Path:
    """Return the folder of the model with exits: bundles say its name."""
    return job.work / job.classifier.resolve().name


def _export(job: Adoption, folder: Path, console: Console) -> None:
    planned = plan(folder, _precisions())
    for remark in planned.notes:
        console.print(f"note: {remark}", highlight=False, markup=False, soft_wrap=True)
    with progress(console, "exporting", planned.num_steps) as advance:
        write(planned, job.out, lambda step: advance(1, step), force=True)


def _precisions() -> tuple[Precision, ...]:
    return ("fp32", "int8", "fp16") if available("auto") == "cuda" else ("fp32", "int8")


def _seconds_per_text(source: TorchSource, parts: Parts) -> float:
    sample = parts.calibrating[:_SAMPLE_TEXTS]
    took_s = []
    for _ in range(2):  # the first run allocates
        began_s = time.monotonic()
        recorded(source, sample)
        took_s.append(time.monotonic() - began_s)
    return min(took_s) / len(sample)


def _check_unchanged(job: Adoption) -> None:
    """Refuse to go on with another run's folder, and to replace a bundle of another origin."""
    state = job.work / _STATE
    if not state.exists():
        if job.out.exists() and any(job.out.iterdir()):
            raise ExportFailed(f"{job.out} exists: choose another --out, or remove it")
        job.work.mkdir(parents=True, exist_ok=True)
        _record(job, [])
    elif _read(job)[0] != _fingerprint(job):
        raise TrainingFailed(
            f"{job.work} is of a run with another classifier, other texts or columns: repeat "
            "that run's arguments, choose another --out, or remove the folder"
        )


def _read(job: Adoption) -> tuple[str, list[str]]:
    """Return the fingerprint of the run that the folder is of, and the steps that are done."""
    path = job.work / _STATE
    try:
        found = json.loads(read_file(path, _MOST_STATE))
        return str(found["of"]), [str(name) for name in found["done"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TrainingFailed(f"{path} cannot be read: remove {job.work} to start anew") from error


def _record(job: Adoption, done: list[str]) -> None:
    path = job.work / _STATE
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"of": _fingerprint(job), "done": done}, indent=2), "utf-8")
    partial.replace(path)


def _fingerprint(job: Adoption) -> str:
    """Return a hash of what the steps' results depend on."""
    files = [path for path in sorted(job.classifier.iterdir()) if path.is_file()]
    parts = [*map(sha256_of, [*files, *job.texts]), json.dumps(asdict(job.columns))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
