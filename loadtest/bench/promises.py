"""How often promises of early exit are broken: `python -m loadtest.bench.promises BUNDLE`.

Recorded texts are split at random, again and again: one half certifies, the rest shows what the
certified rule costs. Beside the certified choice stands the one that looks natural: the fastest
rule that costs at most epsilon on the very texts that it is chosen by.

A promise is about all texts of a kind, of which the rest is a sample. So a promise that is kept may
be exceeded on the rest by chance. The last columns have no such noise: there the recorded texts are
all there are, and the certifying texts are drawn from them with replacement.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeAlias

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from models.certification.calibrate import CalibrationJob, sample_texts
from models.certification.path_choice import EPSILONS, Terms
from models.certification.replay import Replay
from models.certification.risk_control import num_certified
from models.certification.variant import find_path, record_sides
from models.quality.source import BundleSource
from serve.bundle.loader import load_bundle
from serve.policy.ladder import Loss
from serve.runtime.placement import place

_FILE = {"exists": True, "dir_okay": False}

Rows: TypeAlias = NDArray[np.intp]
# From (rules,) risks on some texts: how many rules, from the first on, may be used.
Choice: TypeAlias = Callable[[NDArray[np.float64]], int]


class Trial(NamedTuple):
    """One draw of the texts that choose."""

    chosen_by: Rows  # places of the texts that choose
    judged_by: Rows  # places of the texts that show what the choice costs


class Measured(NamedTuple):
    """What every rule of a path makes of every text."""

    layers: NDArray[np.float64]  # (rules, rows) that are run
    losses: NDArray[np.float64]  # (rules, rows) what leaving costs
    depth: int  # the model's layers

    @classmethod
    def of(cls, replay: Replay, loss: Loss) -> "Measured":
        """Return one loss of a path."""
        exits = replay.exits
        losses = replay.losses.by_loss[loss][exits, np.arange(exits.shape[1])]
        return cls(np.array(replay.layers, np.float64)[exits], losses, replay.layers[-1])

    def outcomes(self, choice: Choice, trials: Sequence[Trial]) -> NDArray[np.float64]:
        """Return (trials, 2) mean layers and mean loss of the chosen rule where it is judged."""
        found = []
        for trial in trials:
            end = choice(self.losses[:, trial.chosen_by].mean(axis=1))
            if not end:
                found.append((self.depth, 0.0))
                continue
            rule, rows = end - 1, trial.judged_by
            found.append((self.layers[rule, rows].mean(), self.losses[rule, rows].mean()))
        return np.array(found)


def certified_choice(n: int, epsilon: float, delta: float, binary: bool) -> Choice:
    """Return the choice of the fastest certified rule."""
    return lambda risks: num_certified(risks, n, epsilon, delta, binary)


def natural_choice(epsilon: float) -> Choice:
    """Return the choice of the fastest rule that costs at most epsilon where it is chosen."""
    return lambda risks: int(np.flatnonzero(risks <= epsilon).max(initial=-1)) + 1


def splits(num_rows: int, count: int, draw: np.random.Generator) -> list[Trial]:
    """Return random halves."""
    shuffled = (draw.permutation(num_rows) for _ in range(count))
    return [Trial(rows[: num_rows // 2], rows[num_rows // 2 :]) for rows in shuffled]


def draws(num_rows: int, count: int, draw: np.random.Generator) -> list[Trial]:
    """Return draws with replacement, judged by all texts."""
    every = np.arange(num_rows)
    return [Trial(draw.integers(0, num_rows, num_rows // 2), every) for _ in range(count)]


def rows_of_table(replay: Replay, count: int, delta: float, seed: int = 0) -> Iterator[list[str]]:
    """Yield the table's rows: for every loss and bound the certified and the natural choice."""
    num_rows, n = replay.exits.shape[1], replay.exits.shape[1] // 2
    draw = np.random.default_rng(seed)
    by_split, by_draw = splits(num_rows, count, draw), draws(num_rows, 5 * count, draw)
    for loss in replay.losses.by_loss:
        measured, binary = Measured.of(replay, loss), loss in replay.losses.binary
        for epsilon in EPSILONS:
            choices = {
                "certified": certified_choice(n, epsilon, delta, binary),
                "natural": natural_choice(epsilon),
            }
            for name, choice in choices.items():
                split = measured.outcomes(choice, by_split)
                known = measured.outcomes(choice, by_draw)
                yield [
                    *(loss, f"{100 * epsilon:g} %", name, f"{split[:, 0].mean():.2f}"),
                    f"{100 * split[:, 1].mean():.2f}",
                    f"{100 * (split[:, 1] > epsilon).mean():.1f}",
                    f"{100 * (known[:, 1] > epsilon).mean():.1f}",
                ]


HEAD = ["loss", "at most", "choice", "mean layers", "mean loss on the rest %",
        "exceeded on the rest, % of splits", "broken, % of draws"]  # fmt: skip


def main(
    bundle: Annotated[Path, typer.Argument(help="Bundle folder.", exists=True, file_okay=False)],
    data: Annotated[list[Path], typer.Option(help="Texts; several times.", **_FILE)],
    num_splits: Annotated[int, typer.Option("--splits", min=1, help="Random splits.")] = 200,
    delta: Annotated[float, typer.Option(min=1e-9, max=0.5)] = 0.05,
    precision: Annotated[Literal["auto", "fp32", "int8", "fp16"], typer.Option()] = "auto",
    unlabelled: Annotated[bool, typer.Option("--unlabelled")] = False,
) -> None:
    """Print a Markdown table of how often promises are broken."""
    console = Console(stderr=True)
    job = CalibrationJob(bundle, tuple(data), labelled=not unlabelled, delta=delta)
    loaded = load_bundle(bundle)
    placement = place(loaded, "auto", precision)
    sample = sample_texts(job, loaded, console)
    sides = record_sides(BundleSource(loaded, placement), sample, None, console)
    path = find_path(sides, Terms(sample.num_certifying // 2, delta))
    replay = Replay.of(path, sides.certifying, sides.certifying_losses(sides.fitted_scores(path)))
    half = sample.num_certifying // 2
    typer.echo(
        f"{loaded.name} {placement.precision}: {sample.num_tuning} texts chose the path; {half} of "
        f"{sample.num_certifying} others certify, {num_splits} times; delta {delta:g}\n"
    )
    for cells in (HEAD, ["---"] * len(HEAD), *rows_of_table(replay, num_splits, delta)):
        typer.echo(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    typer.run(main)
