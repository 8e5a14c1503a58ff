"""The exit layer of each request, counted from 1."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from serve.errors import OfframpError

# Share of requests that run to the last layer in a DeeBERT-like mix.
_NEVER_SURE = 0.12
_GOLDEN = 0.5 * (5**0.5 - 1)


class InvalidSimulation(OfframpError):
    """An option or an input file of the simulator is wrong."""


@dataclass(frozen=True, slots=True)
class ExitMix:
    """How likely each exit layer is."""

    name: str  # as the command line spells it
    weights: tuple[float, ...]  # one per layer, from layer 1; they need not add up to 1

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of requests that leave at each layer."""
        weights: NDArray[np.float64] = np.array(self.weights)
        return weights / float(weights.sum())

    @property
    def mean(self) -> float:
        """The mean exit layer."""
        return float(self.shares @ np.arange(1, len(self.weights) + 1))

    def draw(self, num: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return random exit layers."""
        return rng.choice(len(self.weights), num, p=self.shares) + 1

    def assign(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return an exit layer per request, spread evenly over short and long requests.

        Multiples of the golden ratio lie evenly in every stretch of the requests sorted by length.
        So the mean layer by tokens equals the mean layer by requests, without chance.
        """
        ranks = np.empty(len(lengths), np.int64)
        ranks[np.argsort(lengths, kind="stable")] = np.arange(len(lengths))
        quantiles = (ranks * _GOLDEN) % 1
        layers = 1 + np.searchsorted(np.cumsum(self.shares), quantiles, side="right")
        return np.minimum(layers, len(self.weights))


def uniform(first: int, last: int, num_layers: int) -> ExitMix:
    """Return equal weights for the layers `first` to `last`."""
    name = f"uniform:{first}-{last}"
    if not 1 <= first <= last <= num_layers:
        raise InvalidSimulation(f"exits {name}: the model has layers 1 to {num_layers}")
    return ExitMix(name, tuple(float(first <= k <= last) for k in range(1, num_layers + 1)))


def deebert_like(mean: float, num_layers: int) -> ExitMix:
    """Return a mix like those in DeeBERT's figures: many leave early, a few run to the end.

    12 % run to the last layer; the others' weights fall (or rise) geometrically with the layer,
    at the ratio that gives the mean.
    """
    name = f"deebert:{mean:g}"
    lowest, highest = _geometric(1e-6, num_layers, name), _geometric(1e6, num_layers, name)
    if not lowest.mean <= mean <= highest.mean:
        raise InvalidSimulation(
            f"exits {name}: of {num_layers} layers the mean lies between "
            f"{lowest.mean:.2f} and {highest.mean:.2f}"
        )
    low, high = 1e-6, 1e6
    for _ in range(100):
        ratio = (low * high) ** 0.5
        if _geometric(ratio, num_layers, name).mean < mean:
            low = ratio
        else:
            high = ratio
    return _geometric(high, num_layers, name)


def _geometric(ratio: float, num_layers: int, name: str) -> ExitMix:
    powers = np.arange(num_layers) * np.log(ratio)
    weights = np.exp(powers - powers.max())
    weights *= (1 - _NEVER_SURE) / weights.sum()
    weights[-1] += _NEVER_SURE
    return ExitMix(name, tuple(weights.tolist()))


def read_mix(text: str, num_layers: int) -> ExitMix:
    """Read `uniform:2-12`, `deebert:5`, `fixed:4` or `never`.

    Raises:
        InvalidSimulation: none of these, or not for so many layers.
    """
    kind, _, value = text.partition(":")
    try:
        match kind:
            case "never":
                return ExitMix(text, uniform(num_layers, num_layers, num_layers).weights)
            case "fixed":
                return ExitMix(text, uniform(int(value), int(value), num_layers).weights)
            case "uniform":
                first, _, last = value.partition("-")
                return uniform(int(first), int(last), num_layers)
            case "deebert":
                return deebert_like(float(value), num_layers)
    except ValueError:
        pass
    raise InvalidSimulation(
        f"exits {text!r}: expected uniform:2-{num_layers}, deebert:5, fixed:4 or never"
    )
