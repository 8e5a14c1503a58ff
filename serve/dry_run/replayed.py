"""The exits of a policy, tried on texts."""

import time
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.dry_run.answers import AnswerReader, full_depth
from serve.dry_run.texts import Part, Texts
from serve.errors import OfframpError
from serve.policy.chosen_exit import ChosenExit
from serve.policy.flag import AnyFlag
from serve.policy.served_ladder import ServedLadder

# After so long no more exits are tried on the same texts.
MOST_S: Final = 10.0

Layers: TypeAlias = NDArray[np.float64]  # (texts,)
Which: TypeAlias = NDArray[np.bool_]  # (texts,)


class Replayed(NamedTuple):
    """What an exit would do to texts.

    Attributes:
        layers: (texts,) that each runs, in the mean over its windows.
        ms: (texts,) that these take, each window alone in the engine.
        differs: (texts,) which are answered otherwise than at full depth; None where that cannot
            be said.
        flags: (texts,) which are flagged, deferred, and flagged at full depth; None without a flag.
    """

    layers: Layers
    ms: Layers
    differs: Which | None
    flags: tuple[Which, Which, Which] | None


class TooLong(OfframpError):
    """Trying exits has taken as long as it may."""


class Replay:
    """Tries exits on texts, each distinct one once. Belongs to one thread.

    Attributes:
        texts: on which exits are tried.
    """

    def __init__(self, texts: Texts, ladder: ServedLadder, reader: AnswerReader) -> None:
        """Take the texts, and what tells times and answers of their model."""
        self.texts = texts
        self._ladder, self._reader = ladder, reader
        self._end_s = time.monotonic() + MOST_S
        self._known: dict[str, Replayed] = {}

    def of(self, chosen: ChosenExit) -> Replayed:
        """Return what the default or a profile would do.

        Raises:
            InvalidRule: the texts lack what the rule looks at.
            TooLong: it was not tried, as `MOST_S` are over.
        """
        settings = chosen.settings
        mean = settings.windows is not None and settings.windows.combine == "mean"
        key = f"{chosen.rule.rule.model_dump_json()} {settings.flag!r} {mean}"
        if key not in self._known:
            parts = [self._of_part(p, chosen, settings.flag, mean) for p in self.texts.parts]
            self._known[key] = _joined(parts)
        return self._known[key]

    def _of_part(
        self, part: Part, chosen: ChosenExit, flag: AnyFlag | None, mean: bool
    ) -> Replayed:
        if time.monotonic() > self._end_s:
            raise TooLong(f"not tried: the exits before it took {MOST_S:g} s")
        taken = part.recording.taken(chosen.rule.rule)
        layers = np.array(part.recording.traits.exits)[taken.exits]
        ms = np.array(self._ladder.exit_times_ms(chosen.rule))[taken.exits]
        flags = None
        if flag is not None:
            due, _ = self._reader.flagged(part, full_depth(part), flag, mean)
            flags = (*self._reader.flagged(part, taken, flag, mean), due)
        differs = self._reader.differs(part, taken, mean)
        return Replayed(_mean(part, layers), _mean(part, ms), differs, flags)


def _mean(part: Part, values: NDArray[np.float64]) -> Layers:
    """Return (texts,) the mean over each text's windows."""
    sums: Layers = np.add.reduceat(values, part.first, dtype=np.float64)
    return sums / part.num_windows


def _joined(parts: list[Replayed]) -> Replayed:
    if len(parts) == 1:
        return parts[0]
    layers, ms, differs, flags = zip(*parts, strict=True)
    known = None if differs[0] is None else np.concatenate(differs)
    each = None
    if flags[0] is not None:
        flagged, deferred, due = map(np.concatenate, zip(*flags, strict=True))
        each = flagged, deferred, due
    return Replayed(np.concatenate(layers), np.concatenate(ms), known, each)
