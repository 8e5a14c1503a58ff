"""Simulated requests: when they arrive, how long they are, and at which layer they leave."""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.errors import OfframpError

Times: TypeAlias = NDArray[np.float64]

LONGEST = 66
# Tokens of a text in SST-2, special ones included; the logarithm is normal.
_MEDIAN, _SIGMA = 23.0, 0.45
# Share of requests that run to the last layer in a DeeBERT-like mix.
_NEVER_SURE = 0.12
_GOLDEN = 0.5 * (5**0.5 - 1)


class InvalidSimulation(OfframpError):
    """An option or an input file of the simulator is wrong."""


def sst2_lengths(
    num: int, seed: int | np.random.Generator, longest: int = LONGEST
) -> NDArray[np.int64]:
    """Return so many token lengths as in SST-2's development set; longer draws are cut."""
    drawn = np.random.default_rng(seed).lognormal(np.log(_MEDIAN), _SIGMA, num)
    return np.clip(np.rint(drawn), 3, longest).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ExitMix:
    """The share of requests that leave at each layer, counted from 1."""

    name: str  # as the command line spells it
    shares: NDArray[np.float64]  # (layers,)

    @property
    def mean(self) -> float:
        """The mean exit layer."""
        return float(self.shares @ np.arange(1, len(self.shares) + 1))

    def draw(self, num: int, draw: np.random.Generator) -> NDArray[np.int64]:
        """Return random exit layers."""
        return draw.choice(len(self.shares), num, p=self.shares) + 1

    def assign(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return an exit layer per request, spread evenly over short and long requests.

        Multiples of the golden ratio lie evenly in every stretch of the requests sorted by length.
        So the mean layer by tokens equals the mean layer by requests, without chance.
        """
        ranks = np.empty(len(lengths), np.int64)
        ranks[np.argsort(lengths, kind="stable")] = np.arange(len(lengths))
        layers = 1 + np.searchsorted(np.cumsum(self.shares), (ranks * _GOLDEN) % 1, side="right")
        return np.minimum(layers, len(self.shares))


def uniform(first: int, last: int, num_layers: int) -> ExitMix:
    """Return equal shares for the layers `first` to `last`."""
    name = f"uniform:{first}-{last}"
    if not 1 <= first <= last <= num_layers:
        raise InvalidSimulation(f"exits {name}: the model has layers 1 to {num_layers}")
    layers = np.arange(1, num_layers + 1)
    return ExitMix(name, ((first <= layers) & (layers <= last)) / (last - first + 1))


def deebert_like(mean: float, num_layers: int) -> ExitMix:
    """Return a mix like those in DeeBERT's figures: many leave early, a few run to the end.

    12 % run to the last layer; the others' shares fall (or rise) geometrically with the layer, at
    the ratio that gives the mean.
    """
    name, low, high = f"deebert:{mean:g}", 1e-6, 1e6
    least, most = (_geometric(ratio, num_layers, name).mean for ratio in (low, high))
    if not least <= mean <= most:
        raise InvalidSimulation(
            f"exits {name}: of {num_layers} layers the mean lies between {least:.2f} and {most:.2f}"
        )
    for _ in range(100):
        ratio = (low * high) ** 0.5
        below = _geometric(ratio, num_layers, name).mean < mean
        low, high = (ratio, high) if below else (low, ratio)
    return _geometric(high, num_layers, name)


def _geometric(ratio: float, num_layers: int, name: str) -> ExitMix:
    powers = np.arange(num_layers) * np.log(ratio)
    shares = np.exp(powers - powers.max())
    shares *= (1 - _NEVER_SURE) / shares.sum()
    shares[-1] += _NEVER_SURE
    return ExitMix(name, shares)


def read_mix(text: str, num_layers: int) -> ExitMix:
    """Read `uniform:2-12`, `deebert:5`, `fixed:4` or `never`.

    Raises:
        InvalidSimulation: none of these, or not for so many layers.
    """
    kind, _, value = text.partition(":")
    try:
        match kind:
            case "never":
                return replace(uniform(num_layers, num_layers, num_layers), name=text)
            case "fixed":
                return replace(uniform(int(value), int(value), num_layers), name=text)
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


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Requests of one text each, in order of arrival; the same for every contender."""

    arrival_s: Times  # (requests,) ascending
    tokens: NDArray[np.int64]  # (requests,)
    exits: NDArray[np.int64]  # (requests,) segments each runs through, from 1

    def __len__(self) -> int:
        return len(self.arrival_s)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Independent arrivals at a constant rate."""

    mix: ExitMix
    tokens: int | None = None  # of every text; as many as in SST-2 without

    def draw(self, rate: float, num: int, seed: int) -> Workload:
        """Return `num` requests at `rate` per second; all at once if that is infinite.

        Lengths and exits depend on the seed alone: all rates have the same requests.
        """
        when, what = np.random.default_rng((seed, 0)), np.random.default_rng((seed, 1))
        tokens = sst2_lengths(num, what) if self.tokens is None else np.full(num, self.tokens)
        exits = self.mix.draw(num, what)
        return Workload(np.cumsum(when.exponential(1 / rate, num)), tokens, exits)
