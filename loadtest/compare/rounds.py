"""Both rounds of a comparison; contenders for which there is no time are left out."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loadtest.compare.contenders import Contender
from loadtest.compare.measure import (
    FixedRate,
    Saturated,
    Setting,
    measure_fixed,
    measure_saturated,
)

# Of the time, for the first round.
_SHARE_OF_FIRST = 0.6


@dataclass
class Rounds:
    """Measures contenders one after the other."""

    setting: Setting
    minutes: float  # time for both rounds, from now on
    report: Callable[[str], None]  # prints progress
    _began_s: float = field(default_factory=time.monotonic)

    def saturate(self, contenders: Sequence[Contender]) -> list[Saturated]:
        """Saturate each contender; the first is measured in any case."""
        found: list[Saturated] = []
        for contender in contenders:
            if found and self._time_over(_SHARE_OF_FIRST, contender):
                continue
            found.append(measure_saturated(contender, self.setting))
            self.report(f"{contender.name}: {found[-1].per_second:.0f} requests/s")
        return found

    def fix(self, contenders: Sequence[Contender], per_second: float) -> list[FixedRate | None]:
        """Load each at the same rate; None if there was no time."""
        self.report(f"the fixed rate is {per_second:.0f} requests/s")
        found: list[FixedRate | None] = []
        for contender in contenders:
            if self._time_over(1.0, contender):
                found.append(None)
                continue
            seconds = self.setting.load.seconds
            found.append(fixed := measure_fixed(contender, self.setting, per_second, seconds))
            self.report(f"{contender.name}: p99 {fixed.p99_ms:.0f} ms")
        return found

    def _time_over(self, share: float, contender: Contender) -> bool:
        over = time.monotonic() - self._began_s > share * 60 * self.minutes
        if over:
            self.report(f"no time for {contender.name}")
        return over
