"""The certified rules of a model folder that hold for an exported bundle."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from export.errors import ExportFailed
from models.model_folder import read_calibration
from serve.bundle.manifest import Precision
from serve.errors import OfframpError
from serve.policy.ladder import Ladder
from serve.rules.traits import listed


class Carried(NamedTuple):
    """Ladders that hold, and a note for each that does not."""

    ladders: tuple[Ladder, ...]
    notes: list[str]


def carried(
    ladders: Iterable[Ladder],
    weights: Mapping[Precision, str],
    exits: tuple[int, ...],
    table: str | None = None,
) -> Carried:
    """Return the ladders that were certified on just these variants.

    Args:
        ladders: of the model folder.
        weights: sha256 of the weights of each exported precision.
        exits: layers of the exported exits.
        table: sha256 of the exported table.
    """
    kept, notes = [], []
    for ladder in ladders:
        reason = _unfit(ladder, weights, exits, table)
        if reason is None:
            kept.append(ladder)
        else:
            notes.append(
                f"{ladder.precision}: certified rules for exits {list(ladder.exits)} were dropped: "
                f"{reason}; `offramp calibrate` certifies the bundle"
            )
    return Carried(tuple(kept), notes)


def lost(out: Path, ladders: Iterable[Ladder]) -> list[str]:
    """Return what is certified in a bundle that is to be replaced, and not among these ladders."""
    try:
        present = read_calibration(out).ladders if out.is_dir() else ()
    except OfframpError:  # what cannot be read, the server does not use either
        return []
    kept = tuple(ladders)
    return [_certified(ladder) for ladder in present if ladder not in kept]


def check_kept(out: Path, ladders: Iterable[Ladder]) -> None:
    """Raise `ExportFailed` if a bundle at `out` has certified rules that are not among these."""
    if dropped := lost(out, ladders):
        raise ExportFailed(
            f"{out} is calibrated, and the new bundle would not be: {'; '.join(dropped)}. Choose "
            "another place for --out, or drop them by --force; `offramp calibrate` certifies again"
        )


def _certified(ladder: Ladder) -> str:
    """Return what a ladder is certified for, in words."""
    bounds = [c.epsilon for rung in ladder.rungs for c in rung.certificates]
    promise = f", at most {100 * min(bounds):g} % and up" if bounds else ""
    files = " and ".join(data.name for data in ladder.data)
    return (
        f"{ladder.precision} with exits at {listed(ladder.exits)} (certified by "
        f"{ladder.num_certifying} texts of {files}{promise})"
    )


def _unfit(
    ladder: Ladder, weights: Mapping[Precision, str], exits: tuple[int, ...], table: str | None
) -> str | None:
    if ladder.precision not in weights:
        return "the precision is not exported"
    if not set(ladder.exits) <= set(exits):
        return f"the exits are {list(exits)}"
    if ladder.weights != weights[ladder.precision]:
        return "they are of other weights"
    if ladder.table not in (None, table):
        return "they are of another table"
    if ladder.small is not None:
        return "they are of a small model in front, which `offramp calibrate --small` adds"
    return None
