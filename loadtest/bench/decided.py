"""How often promises about a flag are broken: `python -m loadtest.bench.decided BUNDLE`.

As `loadtest.bench.promises`, for what a flag decides: one half of recorded texts certifies what is
missed and what are false alarms, the rest shows what the certified rule costs. Beside it stand the
fastest rule that keeps both bounds on the very texts that it is chosen by, and the rule that is
certified to give 1 % other labels at most.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeAlias

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from loadtest.bench.promises import (
    Trial,
    certified_choice,
    draws,
    natural_choice,
    splits,
)
from models.certification.calibrate import CalibrationJob, sample_texts
from models.certification.cli import thresholds_of
from models.certification.decisions import SIDES, FlaggedTexts, first_layer
from models.certification.path_choice import Terms
from models.certification.replay import Replay
from models.certification.variant import Sides, find_path, record_sides
from models.recorded import BundleSource, Recorded
from serve.bundle.loader import load_bundle
from serve.runtime.placement import place

_FILE = {"exists": True, "dir_okay": False}
LABELS_AT_MOST, DELTA = 0.01, 0.05

# From a side's risks, how many texts they are of, and the bound: how many bounds may be used.
Choice: TypeAlias = Callable[[NDArray[np.float64], int, float], int]


class Measured(NamedTuple):
    """What the bounds of both sides make of every text.

    Attributes:
        texts: which of them each exit flags.
        exits: by side, (bounds, rows) where each text leaves.
        layers: of the exits.
    """

    texts: FlaggedTexts
    exits: Sequence[NDArray[np.intp]]
    layers: NDArray[np.float64]

    def outcomes(
        self, most: Sequence[float], choice: Choice, trials: Sequence[Trial]
    ) -> NDArray[np.float64]:
        """Return (trials, 3) mean layers, missed, and false alarms of the chosen rules."""
        return np.array([self._outcome(most, choice, *trial) for trial in trials])

    def _outcome(
        self, most: Sequence[float], choice: Choice, chosen_by: NDArray[np.intp],
        judged_by: NDArray[np.intp],
    ) -> tuple[float, float, float]:  # fmt: skip
        full, last = self.texts.flagged[-1], len(self.layers) - 1
        exits = np.full(len(full), last)
        for place_, (of_side, bound) in enumerate(zip(self.exits, most, strict=True)):
            counted = chosen_by[full[chosen_by] != bool(place_)]
            lost = self.texts.flagged[of_side[:, counted], counted] == bool(place_)
            if end := choice(lost.mean(axis=1), len(counted), bound):
                exits = np.minimum(exits, of_side[end - 1])
        own = self.texts.at(exits)[judged_by]
        flagged = full[judged_by]
        layers = self.layers[exits[judged_by]].mean()
        return float(layers), float((~own[flagged]).mean()), float(own[~flagged].mean())


def measured(sides: Sides, flag: dict[str, float]) -> Measured:
    """Choose by the texts that tune, and try all bounds on the others."""
    scores = sides.fitted_scores(find_path(sides, Terms(sides.certifying.num_rows // 2, DELTA)))

    def shown(recorded: Recorded) -> FlaggedTexts:
        traits = replace(recorded.traits, score_temperatures=scores)
        return FlaggedTexts.of(replace(recorded, traits=traits), flag)

    texts = shown(sides.certifying)
    layer = first_layer(shown(sides.tuning), sides.certifying.num_rows // 2, DELTA)
    exits = [texts.side(loss, layer).exits for loss in SIDES]
    return Measured(texts, exits, np.array(texts.recorded.traits.exits, np.float64))


def rows_of_table(found: Measured, count: int, seed: int = 0) -> Iterator[list[str]]:
    """Yield the table's rows: for every pair of bounds the certified and the natural choice."""
    num_rows, draw = found.texts.recorded.num_rows, np.random.default_rng(seed)
    by_split, by_draw = splits(num_rows, count, draw), draws(num_rows, count, draw)
    choices: dict[str, Choice] = {
        "certified": lambda risks, n, most: certified_choice(n, most, DELTA, True)(risks),
        "natural": lambda risks, n, most: natural_choice(most)(risks),
    }
    for most in ((0.01, 0.01), (0.01, 0.02), (0.02, 0.02), (0.05, 0.02)):
        for name, choice in choices.items():
            split = found.outcomes(most, choice, by_split)
            known = found.outcomes(most, choice, by_draw)
            yield [
                *(f"{100 * most[0]:g} %", f"{100 * most[1]:g} %", name),
                f"{split[:, 0].mean():.2f}",
                *(f"{100 * (split[:, 1 + i] > most[i]).mean():.1f}" for i in range(2)),
                *(f"{100 * (known[:, 1 + i] > most[i]).mean():.1f}" for i in range(2)),
            ]


def layers_by_labels(sides: Sides, count: int, seed: int = 0) -> float:
    """Return the mean layers of rules certified to give 1 % other labels at most, over splits."""
    half = sides.certifying.num_rows // 2
    path = find_path(sides, Terms(half, DELTA))
    replay = Replay.of(path, sides.certifying, sides.certifying_losses())
    lost = replay.losses.by_loss["disagreement"][replay.exits, np.arange(replay.exits.shape[1])]
    choice, layers = certified_choice(half, LABELS_AT_MOST, DELTA, True), np.array(replay.layers)
    found = []
    for trial in splits(sides.certifying.num_rows, count, np.random.default_rng(seed)):
        end = choice(lost[:, trial.chosen_by].mean(axis=1))
        exits = replay.exits[end - 1][trial.judged_by] if end else np.array([-1])
        found.append(layers[exits].mean())
    return float(np.mean(found))


HEAD = ["missed at most", "false alarms at most", "choice", "mean layers",
        "missed: exceeded on the rest, % of splits", "false alarms: exceeded, % of splits",
        "missed: broken, % of draws", "false alarms: broken, % of draws"]  # fmt: skip


def main(
    bundle: Annotated[Path, typer.Argument(help="Bundle folder.", exists=True, file_okay=False)],
    data: Annotated[list[Path], typer.Option(help="Texts; several times.", **_FILE)],
    flag: Annotated[list[str], typer.Option(help="LABEL=THRESHOLD; several times.")],
    tuning: Annotated[Path | None, typer.Option(help="Texts that choose.", **_FILE)] = None,
    num_splits: Annotated[int, typer.Option("--splits", min=1, help="Random splits.")] = 200,
    precision: Annotated[Literal["auto", "fp32", "int8", "fp16"], typer.Option()] = "auto",
) -> None:
    """Print a Markdown table of how often promises about a flag are broken."""
    console, own = Console(stderr=True), thresholds_of(flag) or {}
    loaded = load_bundle(bundle)
    placement = place(loaded, "auto", precision)
    job = CalibrationJob(bundle, tuple(data), tuning, delta=DELTA)
    sample = sample_texts(job, loaded, console)
    sides = record_sides(BundleSource(loaded, placement), sample, None, console)
    found = measured(sides, own)
    typer.echo(
        f"{loaded.name} {placement.precision}: {sample.num_tuning} texts chose; half of "
        f"{sample.num_certifying} others certify, {num_splits} times, of which full depth flags "
        f"{int(found.texts.flagged[-1].sum())}; delta {DELTA:g}. Labels at 1 %: "
        f"{layers_by_labels(sides, num_splits):.2f} layers\n"
    )
    for cells in (HEAD, ["---"] * len(HEAD), *rows_of_table(found, num_splits)):
        typer.echo(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    typer.run(main)
