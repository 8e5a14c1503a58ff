"""The certified rules of a model folder that hold for an exported bundle."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from serve.bundle.manifest import Precision
from serve.policy.ladder import Ladder


class Carried(NamedTuple):
    """Ladders that hold, and a note for each that does not."""

    ladders: tuple[Ladder, ...]
    notes: list[str]


def carried(
    ladders: Iterable[Ladder], weights: Mapping[Precision, str], exits: tuple[int, ...]
) -> Carried:
    """Return the ladders that were certified on just these variants.

    Args:
        ladders: of the model folder.
        weights: sha256 of the weights of each exported precision.
        exits: layers of the exported exits.
    """
    kept, notes = [], []
    for ladder in ladders:
        reason = _unfit(ladder, weights, exits)
        if reason is None:
            kept.append(ladder)
        else:
            notes.append(
                f"{ladder.precision}: certified rules for exits {list(ladder.exits)} were dropped: "
                f"{reason}; `offramp calibrate` certifies the bundle"
            )
    return Carried(tuple(kept), notes)


def _unfit(ladder: Ladder, weights: Mapping[Precision, str], exits: tuple[int, ...]) -> str | None:
    if ladder.precision not in weights:
        return "the precision is not exported"
    if not set(ladder.exits) <= set(exits):
        return f"the exits are {list(exits)}"
    if ladder.weights != weights[ladder.precision]:
        return "they are of other weights"
    return None
