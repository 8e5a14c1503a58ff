"""When requests arrive: drawn beforehand, ascending, in seconds from the start."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadtest.simulator.errors import InvalidSimulation

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals at a constant rate."""

    name: str = "poisson"

    def draw(self, rate: float, num: int, rng: np.random.Generator) -> Times:
        """Return `num` arrival times at `rate` per second on average."""
        return np.cumsum(rng.exponential(1 / rate, num))


@dataclass(frozen=True, slots=True)
class Bursts:
    """A Poisson process that a two-state Markov chain modulates."""

    peak: float = 2.0  # rate inside a burst over the mean rate
    share: float = 0.25  # of the time that is burst
    burst_s: float = 0.02  # mean length of a burst; lengths are exponential
    name: str = "bursts"

    def __post_init__(self) -> None:
        if not (self.peak > 1 and 0 < self.share < 1 and self.burst_s > 0):
            raise InvalidSimulation(
                "bursts: peak must exceed 1, share lie in (0, 1), length be positive"
            )
        if self.peak * self.share > 1:
            raise InvalidSimulation(
                f"bursts: {self.peak:g} times the mean rate for {self.share:g} of the time is more "
                f"than all requests; peak x share must not exceed 1"
            )

    def draw(self, rate: float, num: int, rng: np.random.Generator) -> Times:
        """Return `num` arrival times at `rate` per second on average.

        Unit-rate arrivals are mapped through the inverse of the integrated rate.
        """
        events = np.cumsum(rng.exponential(1.0, num))
        calm_rate = rate * (1 - self.peak * self.share) / (1 - self.share)
        calm_s = self.burst_s * (1 - self.share) / self.share
        times, mass = np.zeros(1), np.zeros(1)
        while mass[-1] < events[-1]:
            cycles = 64 + int(num / (rate * (calm_s + self.burst_s)))
            spans = rng.exponential((calm_s, self.burst_s), (cycles, 2)).ravel()
            rates = np.tile((calm_rate, rate * self.peak), cycles)
            times = np.concatenate([times, times[-1] + np.cumsum(spans)])
            mass = np.concatenate([mass, mass[-1] + np.cumsum(spans * rates)])
        return np.interp(events, mass, times)


Arrivals = Poisson | Bursts
