"""The exits of a policy, tried on texts."""

import time
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.dry_run.answers import AnswerReader, full_depth
from serve.dry_run.texts import Part, Texts
from serve.dry_run.totals import Totals
from serve.errors import OfframpError
from serve.policy.chosen_exit import ChosenExit
from serve.policy.flag import AnyFlag
from serve.policy.served_ladder import ServedLadder

# After so long no more exits are tried on the same texts.
MOST_S: Final = 10.0

Which: TypeAlias = NDArray[np.bool_]  # (texts,)


class TooLong(OfframpError):
    """Trying exits has taken as long as it may."""


class _TriedPart(NamedTuple):
    """What an exit would do to a part of the texts.

    Attributes:
        layers: (texts,) layers that each text runs, in the mean over its windows.
        ms: (texts,) milliseconds of those layers, each window alone in the engine.
        differs: (texts,) whether the answer is another than full depth's; None where that cannot be
            said.
        flags: (texts,) whether a text is flagged, deferred, and flagged at full depth; None without
            a flag.
    """

    layers: NDArray[np.float64]
    ms: NDArray[np.float64]
    differs: Which | None
    flags: tuple[Which, Which, Which] | None

    def totals(self, which: Which) -> Totals:
        """Count some of the texts."""
        layers, differs = self.layers[which], self.differs
        sums = Totals(
            texts=len(layers),
            layers=float(layers.sum()),
            squared=float((layers**2).sum()),
            ms=float(self.ms[which].sum()),
            differ=-len(layers) if differs is None else int(differs[which].sum()),
        )
        if self.flags is None:
            return sums
        flagged, deferred, due = (each[which] for each in self.flags)
        return sums._replace(
            flagged=int(flagged.sum()),
            deferred=int(deferred.sum()),
            due=int(due.sum()),
            missed=int((due & ~flagged).sum()),
            false_alarms=int((flagged & ~due).sum()),
        )


class Trial:
    """Tries exits on texts, each distinct one once. Belongs to one thread.

    Attributes:
        texts: on which exits are tried.
    """

    def __init__(self, texts: Texts, ladder: ServedLadder, reader: AnswerReader) -> None:
        """Take the texts, and what tells times and answers of their model."""
        self.texts = texts
        self._ladder, self._reader = ladder, reader
        self._end_s = time.monotonic() + MOST_S
        self._known: dict[str, list[_TriedPart]] = {}

    def totals(self, chosen: ChosenExit, which: Which | None = None) -> Totals:
        """Count what the default or a profile would do to some of the texts; None for all.

        Raises:
            InvalidRule: the texts lack what the rule looks at.
            TooLong: it was not tried, as `MOST_S` are over.
        """
        settings = chosen.settings
        mean = settings.windows is not None and settings.windows.combine == "mean"
        key = f"{chosen.rule.rule.model_dump_json()} {settings.flag!r} {mean}"
        if key not in self._known:
            parts = self.texts.parts
            self._known[key] = [self._try(part, chosen, settings.flag, mean) for part in parts]
        if which is None:
            which = np.ones(len(self.texts), np.bool_)
        total, first = Totals(), 0
        for tried in self._known[key]:
            end = first + len(tried.layers)
            total = total.plus(tried.totals(which[first:end]))
            first = end
        return total

    def _try(self, part: Part, chosen: ChosenExit, flag: AnyFlag | None, mean: bool) -> _TriedPart:
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
        return _TriedPart(part.mean(layers), part.mean(ms), differs, flags)
