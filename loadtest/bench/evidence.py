"""How many audits the alarm of a broken promise takes: `python -m loadtest.bench.evidence`.

Prints the table of docs/operations.md. Nothing is drawn: the counts at which the evidence crosses
are worked out for every number of audits, and from them the chance to have crossed by then.
"""

import argparse
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from serve.audits.evidence import log10_evidence, log10_restarted

# What is promised, and the true rates that the table shows as multiples of it.
EPSILONS = (0.005, 0.01, 0.02, 0.03)
TIMES = (2, 3, 6)
DELTA = 0.01  # the default of `guard.delta`
CHANCES = (0.5, 0.95)
MOST_AUDITS = 20_000


def least_differences(epsilon: float, delta: float, most: int) -> NDArray[np.int64]:
    """Return (most,) the least differences after 1, 2, ... audits at which the alarm is raised.

    Where even as many as there are audits are too few, it is one more than those.
    """
    audits = np.arange(1, most + 1)
    low, high = np.zeros(most, np.int64), audits + 1
    least = -np.log10(delta) - log10_restarted((0, 0), (), epsilon)  # as on a promise's first day
    while (low < high).any():
        middle = np.minimum((low + high) // 2, audits)
        crossed = log10_evidence(middle, audits, epsilon) >= least
        low, high = np.where(crossed, low, middle + 1), np.where(crossed, middle, high)
    return low


def chance_of_alarm(
    epsilon: float, delta: float, rate: float, most: int = MOST_AUDITS
) -> Iterator[float]:
    """Yield the chance of an alarm within 1, 2, ... audits of texts of a true rate."""
    least = least_differences(epsilon, delta, most)
    alarmed, quiet = 0.0, np.zeros(least[-1] + 1)  # no alarm yet: by the number of differences
    quiet[0] = 1.0
    for bound in least:
        quiet[1:] = quiet[1:] * (1 - rate) + quiet[:-1] * rate
        quiet[0] *= 1 - rate
        alarmed += quiet[bound:].sum()
        quiet[bound:] = 0
        yield alarmed


def audits_until(epsilon: float, delta: float, rate: float) -> list[int]:
    """Return after how many audits an alarm has been raised with each of `CHANCES`."""
    found, wanted = [], list(CHANCES)
    for audits, alarmed in enumerate(chance_of_alarm(epsilon, delta, rate), 1):
        while wanted and alarmed >= wanted[0]:
            found.append(audits)
            del wanted[0]
        if not wanted:
            break
    return found


def table() -> Iterator[str]:
    """Yield the lines of the table."""
    heads = (f"audits in {chance:.0%} of cases" for chance in CHANCES)
    yield f"| promised | true rate | {' | '.join(heads)} |".replace("%", " %")
    yield "|" + "---:|" * (2 + len(CHANCES))
    for epsilon in EPSILONS:
        for rate in (times * epsilon for times in TIMES):
            found = audits_until(epsilon, DELTA, rate)
            cells = " | ".join(f"{number:,}" for number in found)
            yield f"| {100 * epsilon:g} % | {100 * rate:g} % | {cells} |"


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m loadtest.bench.evidence").parse_args()
    print("\n".join(table()))
