"""The exits of a policy, tried on texts."""

import math
import time
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.dry_run.answers import AnswerReader, full_depth
from serve.dry_run.texts import Part, Texts
from serve.errors import OfframpError
from serve.policy.resolution import ChosenExit
from serve.policy.served_ladder import ServedLadder

# Of a normal distribution, the half width of its 95 % in standard deviations.
_WIDTH: Final = 1.96
# The probability that a share lies outside of its interval on one side.
_TAIL: Final = 0.025
_STEPS: Final = 60


class Totals(NamedTuple):
    """Sums over texts; those of a flag are 0 without one.

    Attributes:
        texts: number of texts.
        layers: layers that the texts run, each text in the mean over its windows.
        squared: the squares of those layers.
        ms: milliseconds that the texts take.
        differ: texts that are answered otherwise than at full depth; negative where that cannot be
            said.
        flagged: texts that are flagged by the answers that are sent.
        deferred: texts that are deferred by the answers that are sent.
        due: texts that full depth flags.
        missed: texts that full depth flags and the answer does not.
        false_alarms: texts that the answer flags and full depth does not.
    """

    texts: int = 0
    layers: float = 0.0
    squared: float = 0.0
    ms: float = 0.0
    differ: int = 0
    flagged: int = 0
    deferred: int = 0
    due: int = 0
    missed: int = 0
    false_alarms: int = 0

    def plus(self, other: "Totals") -> "Totals":
        """Return the sums over both."""
        return Totals._make(a + b for a, b in zip(self, other, strict=True))

    @property
    def layers_interval(self) -> tuple[float, float]:
        """The mean of layers, give or take 1.96 standard errors."""
        mean = self.layers / self.texts
        variance = max(0.0, self.squared / self.texts - mean**2)
        about = _WIDTH * math.sqrt(variance / self.texts)
        return mean - about, mean + about


@lru_cache(4096)
def interval(k: int, n: int) -> tuple[float, float]:
    """Return the exact interval of a share of which k of n were seen (Clopper and Pearson, 1934).

    The share lies within it with a probability of 95 %, for a number of texts that does not depend
    on what is seen of them.
    """
    if n == 0:
        return 0.0, 1.0
    if 2 * k > n:
        low, high = interval(n - k, n)
        return 1 - high, 1 - low
    low = _share_at(k - 1, n, 1 - _TAIL) if k else 0.0
    return low, _share_at(k, n, _TAIL)


def _share_at(k: int, n: int, wanted: float) -> float:
    """Return the share at which k or fewer of n are as likely as wanted."""
    i = np.arange(1, k + 1)
    log_ways = np.concatenate([[0.0], np.cumsum(np.log((n - i + 1) / i))])
    number = np.arange(k + 1)
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        p = (low + high) / 2
        likely = np.exp(log_ways + number * np.log(p) + (n - number) * np.log1p(-p)).sum()
        low, high = (p, high) if likely > wanted else (low, p)
    return (low + high) / 2


# After so long no more exits are tried on the same texts.
MOST_S: Final = 10.0

Which: TypeAlias = NDArray[np.bool_]  # (texts,)


class TooLong(OfframpError):
    """Trying exits has taken as long as it may."""


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
        self._known: dict[str, NDArray[np.float64]] = {}

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
            parts = [self._try(part, chosen, mean) for part in self.texts.parts]
            self._known[key] = np.concatenate(parts)
        sums = self._known[key][slice(None) if which is None else which].sum(axis=0)
        numbers = (kind(n) for kind, n in zip(Totals.__annotations__.values(), sums, strict=True))
        return Totals(*numbers)

    def _try(self, part: Part, chosen: ChosenExit, mean: bool) -> NDArray[np.float64]:
        """Return (texts, fields) what `Totals` sums up, of each text."""
        if time.monotonic() > self._end_s:
            raise TooLong(f"not tried: the exits before it took {MOST_S:g} s")
        taken, read, flag = (
            part.recording.taken(chosen.rule.rule),
            self._reader,
            chosen.settings.flag,
        )
        layers_taken = part.recording.traits.layers_taken(chosen.rule.rule)
        layers = part.mean(np.array(layers_taken, np.float64)[taken.exits])
        ms = part.mean(np.array(self._ladder.exit_times_ms(chosen.rule))[taken.exits])
        one = np.ones(len(layers))
        differs = read.differs(part, taken, mean)
        found = [one, layers, layers**2, ms, -one if differs is None else differs]
        if flag is None:
            found += [0 * one] * 5
        else:
            flagged, deferred = read.flagged(part, taken, flag, mean)
            due, _ = read.flagged(part, full_depth(part), flag, mean)
            found += [flagged, deferred, due, due & ~flagged, flagged & ~due]
        return np.stack(found, axis=1)
