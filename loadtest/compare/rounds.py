"""Both rounds of a comparison, within a time limit: who comes too late is left out, and named."""

import time
from collections.abc import Callable, Sequence

from loadtest.compare.contenders import Contender
from loadtest.compare.measure import Fixed, Saturated, Setting, measure_fixed, measure_saturated

# Of the time, for the first round.
_SHARE_OF_FIRST = 0.6


class Clock:
    """How much of the time is over."""

    def __init__(self, minutes: float) -> None:
        self._began_s = time.monotonic()
        self._limit_s = 60 * minutes

    @property
    def share(self) -> float:
        """Share of the time that is over; above 1 when it is."""
        return (time.monotonic() - self._began_s) / self._limit_s


class Rounds:
    """Measures contenders one after the other."""

    def __init__(self, setting: Setting, clock: Clock, tell: Callable[[str], None]) -> None:
        """Take what is the same for all, the time, and where to say how it goes."""
        self._setting, self._clock, self._tell = setting, clock, tell

    def saturate(self, contenders: Sequence[Contender]) -> list[Saturated]:
        """Load each with as much as it can bear; the first is measured in any case."""
        found: list[Saturated] = []
        for contender in contenders:
            if found and self._clock.share > _SHARE_OF_FIRST:
                self._tell(f"no time for {contender.name}")
                continue
            found.append(measure_saturated(contender, self._setting))
            self._tell(f"{contender.name}: {found[-1].per_second:.0f} requests/s")
        return found

    def fix(self, contenders: Sequence[Contender], per_second: float) -> list[Fixed | None]:
        """Ask each at the same rate; None where there was no time."""
        self._tell(f"the fixed rate is {per_second:.0f} requests/s")
        found: list[Fixed | None] = []
        for contender in contenders:
            if self._clock.share > 1:
                self._tell(f"no time for {contender.name}")
                found.append(None)
                continue
            seconds = self._setting.load.seconds
            found.append(fixed := measure_fixed(contender, self._setting, per_second, seconds))
            self._tell(f"{contender.name}: p99 {fixed.p99_ms:.0f} ms")
        return found
