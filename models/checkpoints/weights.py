"""A checkpoint's weights, and which of them are used."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from models.encoders.meta import listed
from models.errors import UnusableCheckpoint


class DroppedWeights(NamedTuple):
    """Names of unused weights, and the reason."""

    keys: str
    why: str


class Weights:
    """A checkpoint's weights; a reader takes or drops each of them once.

    Attributes:
        dropped: the weights dropped so far.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._left = dict(tensors)
        self.dropped: list[DroppedWeights] = []

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def has(self, pattern: str) -> bool:
        """Return whether the pattern matches the beginning of any weight's name."""
        return any(re.match(pattern, name) for name in self._left)

    def peek(self, name: str) -> Tensor:
        """Return a weight without taking it.

        Raises:
            UnusableCheckpoint: there is no weight of that name.
        """
        if name not in self._left:
            raise UnusableCheckpoint(f"the checkpoint has no {name}: is it complete?")
        return self._left[name]

    def take(self, names: Mapping[str, str]) -> dict[str, Tensor]:
        """Take weights and return them under other names; `names` maps new to stored names.

        Raises:
            UnusableCheckpoint: one of them is missing.
        """
        found = {new: self.peek(stored) for new, stored in names.items()}
        for stored in names.values():
            self._left.pop(stored, None)
        return found

    def take_modules(self, names: Mapping[str, str]) -> dict[str, Tensor]:
        """Take weight and bias of modules; `names` maps new to stored module names."""
        parts = ("weight", "bias")
        return self.take({f"{new}.{p}": f"{old}.{p}" for new, old in names.items() for p in parts})

    def take_all(self, prefix: str) -> dict[str, Tensor]:
        """Take all weights whose names begin with the prefix; return them without the prefix."""
        found = {n: tensor for n, tensor in self._left.items() if n.startswith(prefix)}
        for name in found:
            del self._left[name]
        return {name.removeprefix(prefix): tensor for name, tensor in found.items()}

    def indices(self, pattern: str) -> list[int]:
        """Return the distinct numbers in the names that the pattern's group matches, sorted."""
        found = (re.match(pattern, name) for name in self._left)
        return sorted({int(match[1]) for match in found if match})

    def drop(self, pattern: str, why: str, keys: str | None = None) -> None:
        """Drop all weights with names that the pattern matches at the beginning.

        Args:
            pattern: a regular expression.
            why: the reason, for the user.
            keys: name of the dropped weights for the user; by default the first name and a count.
        """
        gone = [name for name in self._left if re.match(pattern, name)]
        for name in gone:
            del self._left[name]
        if gone:
            more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
            self.dropped.append(DroppedWeights(keys or f"{gone[0]}{more}", why))

    def names(self) -> str:
        """Return the names of the first weights that are left, and how many more there are."""
        return listed(sorted(self._left))

    def check_empty(self, folder: Path, format_: str) -> None:
        """Check that every weight was taken or dropped, after the format has read all it knows.

        Raises:
            UnusableCheckpoint: some are left, so a part of the model would be missing.
        """
        if self._left:
            raise UnusableCheckpoint(
                f"{folder}: no part of {format_} reads {self.names()}. The model may "
                "compute more than would be served: if it does not, save it without them"
            )
