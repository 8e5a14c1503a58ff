"""A teacher: another classifier whose answers on the training rows all exits learn from.

Its last exit's logits are computed once, before the training ("Distilling the Knowledge in a
Neural Network", Hinton et al. 2015).
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from models import checkpoints
from models.data.datasets import read_dataset
from models.data.label_ids import label_order
from models.data.unlabelled import read_unlabelled
from models.errors import TrainingFailed
from models.multi_exit import MultiExitModel
from models.progress import progress
from models.quality.recorded import Recorded, inputs, recorded
from models.quality.reference import ReferenceAnswers
from models.quality.source import TorchSource
from models.training.job import TrainJob
from models.training.losses import FromTeacher
from serve.bundle.loader import sha256_of
from serve.policy.ladder import Reference
from serve.rules.signals import decisions
from serve.rules.traits import Task
from serve.tokenization.tokenizer import Text

# Of a text: a label's id; 1.0 or 0.0 for each label; or a regression's value.
Answer: TypeAlias = int | tuple[float, ...] | float


class TeacherAnswers(NamedTuple):
    """What a teacher says about rows, and how much that counts.

    Attributes:
        logits: (rows, labels), float32; the labels in the student's order.
        weight: of learning from them, beside learning from labels with weight 1.
        temperature: both sides' logits are divided by it.
    """

    logits: Tensor
    weight: float = 1.0
    temperature: float = 1.0

    def of_rows(self, rows: Sequence[int], device: torch.device) -> "TeacherAnswers":
        """Return the answers for some rows, on a device."""
        return self._replace(logits=self.logits[list(rows)].to(device))

    def loss(self, from_teacher: FromTeacher, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the weighted loss of one exit; its gradient's size hardly depends on temperature.

        Args:
            from_teacher: the task's.
            logits: of the exit, (rows, labels).
            labels: of the batch.
        """
        t = self.temperature
        return self.weight * t * t * from_teacher(logits / t, self.logits / t, labels)


class Teacher:
    """A classifier with the student's task and labels; its tokenizer may be another one.

    Attributes:
        name: its folder's.
        sha256: of weights and tokenizer.
        task: the student's.
        labels: the student's, by id.
    """

    def __init__(self, folder: Path, task: Task | None = None, labels: Sequence[str] = ()) -> None:
        """Read a folder that `offramp train` wrote, or another checkpoint.

        Args:
            folder: the checkpoint's.
            task: the student's; None for the teacher's own.
            labels: the student's, by id; none for the teacher's own.

        Raises:
            TrainingFailed: no such checkpoint, or one of another task or with other labels.
        """
        try:
            loaded = checkpoints.load(folder)
        except (ValueError, OSError) as error:
            raise TrainingFailed(f"--teacher {folder}: {error}") from error
        self._loaded = loaded
        self.name = folder.resolve().name
        self.task: Task = task or loaded.model.exit_config.task
        self.labels = list(labels) or list(loaded.model.labels)
        self._columns = _columns(folder, loaded.model, self.task, self.labels)
        self._source = TorchSource(loaded.model, loaded.tokenizer, loaded.max_tokens)
        self.sha256 = self._source.sha256

    @property
    def label_names(self) -> list[str]:
        """The teacher's own names of its labels."""
        return self._loaded.model.labels

    def logits(self, job: TrainJob, path: Path, console: Console) -> Tensor:
        """Return the answers for all rows of a data file, (rows, labels).

        They are kept in the run's folder, so that a resumed run does not compute them again.
        """
        kept = job.out / self._file_name(job, path)
        if not kept.exists():
            answers, partial = self._compute(job, path, console), kept.with_suffix(".partial")
            with partial.open("wb") as file:
                np.save(file, answers)
            partial.replace(kept)
        return torch.from_numpy(np.load(kept))

    def answers(self, job: TrainJob, path: Path, console: Console) -> list[Answer]:
        """Return the answers for all rows of a data file as labels."""
        logits = self.logits(job, path, console).numpy()
        if self.task == "regression":
            return [float(value) for value in logits[:, 0]]
        decided = decisions(self.task, logits).tolist()
        return [tuple(map(float, d)) if isinstance(d, list) else d for d in decided]

    def remove_cache(self, job: TrainJob) -> None:
        """Delete the kept answers once the run is finished."""
        for path in (job.train, job.dev):
            (job.out / self._file_name(job, path)).unlink(missing_ok=True)

    def compared(self, job: TrainJob, found: Recorded, console: Console) -> str:
        """Return how far full depth of the trained model is from the teacher on the dev data.

        Args:
            job: names the data.
            found: what the trained model says of them.
            console: for progress.
        """
        logits = self.logits(job, job.dev, console).numpy()
        answers = ReferenceAnswers(Reference(name=self.name, sha256=self.sha256), logits)
        return answers.of_full_depth(found)

    def _file_name(self, job: TrainJob, path: Path) -> str:
        about = [self.sha256, sha256_of(path), job.choice.max_tokens, job.config.bf16]
        key = hashlib.sha256(repr([*about, self.labels, job.columns]).encode()).hexdigest()
        return f"teacher-{key[:16]}.npy"

    def _compute(self, job: TrainJob, path: Path, console: Console) -> NDArray[np.float32]:
        model = self._loaded.model.to(job.device)
        limit = min(job.choice.max_tokens, self._loaded.max_tokens)
        source = TorchSource(model, self._loaded.tokenizer, limit)
        texts = self._texts(job, path)
        with (
            progress(console, "teacher", len(texts)) as advance,
            torch.autocast(job.device, torch.bfloat16, enabled=job.config.bf16),
        ):
            last = recorded(source, texts, advance=advance).logits[-1]
        return last[:, self._columns]

    def _texts(self, job: TrainJob, path: Path) -> list[Text]:
        if job.choice.taught:
            return read_unlabelled(path, job.columns)
        return inputs(read_dataset(path, self.task, self.labels, job.columns).examples)[0]


def _columns(folder: Path, model: MultiExitModel, task: Task, labels: Sequence[str]) -> list[int]:
    """Return the teacher's label id for each of the student's labels."""
    if task == "token":
        raise TrainingFailed(
            "--teacher is for whole texts; in token classification the exits can learn from the "
            "last one, by --distill"
        )
    if model.exit_config.task != task:
        raise TrainingFailed(
            f"--teacher {folder}: its task is {model.exit_config.task}, the student's is {task}"
        )
    order = [0] if task == "regression" else label_order(model.labels, labels)
    if order is None:
        raise TrainingFailed(
            f"--teacher {folder}: its labels are {', '.join(model.labels)}; the student's are "
            f"{', '.join(labels)}. A teacher must have the same"
        )
    return order
