"""One training run of an experiment, by name."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self, TypeAlias

DataName: TypeAlias = Literal["sst2", "mrpc", "stsb", "agnews", "rte"]
EncoderName: TypeAlias = Literal["minilm", "mpnet"]

SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Run:
    """A model to train: data, encoder, budget and options.

    Attributes:
        name: what is special about the run, such as `joint` or `two-stage`.
        data: a key of `models.experiments.budgets.BUDGETS`, which says rows, passes and rates.
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

    def folder(self, root: Path) -> Path:
        """Return the model's folder."""
        return root / str(self)

    @classmethod
    def with_seeds(
        cls,
        name: str,
        data: DataName,
        encoder: EncoderName = "minilm",
        options: tuple[str, ...] = (),
        start: "Run | None" = None,
    ) -> tuple[Self, ...]:
        """Return the run once for each seed; the models that they start from too."""
        return tuple(
            cls(name, data, encoder, options, seed, start and replace(start, seed=seed))
            for seed in SEEDS
        )
