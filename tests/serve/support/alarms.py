"""How many audits the alarm of a broken promise takes, worked out and not drawn."""

import numpy as np

from serve.audits.evidence import log10_evidence, log10_restarted

CHANCES = (0.5, 0.95)
_MOST_AUDITS = 20_000


def audits_until(epsilon: float, delta: float, rate: float) -> list[int]:
    """Return after how many audits of texts of a true rate an alarm is raised, by `CHANCES`."""
    least = -np.log10(delta) - log10_restarted((0, 0), (), epsilon)  # as on a promise's first day
    quiet = np.ones(1)  # the chance of no alarm yet, by the number of differences
    found, bound = list[int](), 1
    for audits in range(1, _MOST_AUDITS):
        quiet = np.append(quiet * (1 - rate), 0) + np.append(0, quiet * rate)
        while bound <= audits and log10_evidence(bound, audits, epsilon) < least:
            bound += 1
        quiet = quiet[:bound]
        found += [audits] * sum(1 - quiet.sum() >= chance for chance in CHANCES[len(found) :])
        if len(found) == len(CHANCES):
            break
    return found
