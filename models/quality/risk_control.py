"""Learn then test (Angelopoulos et al. 2021), by MAPIE.

Rules are tested in a fixed order, from strict to loose, for as long as they pass. So no correction
for the number of rules is needed: the first rule whose risk is above epsilon passes with
probability delta at most, and none after it is tested unless it passes.
"""

import math
from typing import TypeAlias

import numpy as np
from mapie.risk_control import control_fwer
from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value
from numpy.typing import NDArray

Risks: TypeAlias = NDArray[np.float64]  # (rules,) mean loss of each rule, 0 to 1


def p_values(risks: Risks, n: int, epsilon: float, binary: bool) -> NDArray[np.float64]:
    """Return (rules,) p-values of the hypotheses that a rule's true risk is above epsilon.

    Args:
        risks: observed on n texts.
        n: how many texts.
        epsilon: bound on the risk.
        binary: whether losses are 0 or 1, so that the exact binomial tail applies; else
            Hoeffding-Bentkus, for losses from 0 to 1.
    """
    counts = np.rint(risks * n) if binary else risks * n
    # MAPIE rounds n * risk up. That of k / n may be a little more than k, which would become k + 1.
    below = np.nextafter(counts / n, 0)
    found = compute_hoeffding_bentkus_p_value(below, n, epsilon, binary=binary)
    values: NDArray[np.float64] = found[:, 0]
    return values


def num_certified(risks: Risks, n: int, epsilon: float, delta: float, binary: bool) -> int:
    """Return how many rules, from the first on, are certified.

    With probability 1 - delta the true risk of all of them is at most epsilon.

    Args:
        risks: observed on n texts that chose neither the rules nor their order.
        n: how many texts.
        epsilon: bound on the risk.
        delta: probability that the bound does not hold.
        binary: whether losses are 0 or 1.
    """
    if not len(risks):
        return 0
    return len(control_fwer(p_values(risks, n, epsilon, binary), delta, "fixed_sequence"))


def rows_needed(risk: float, epsilon: float, delta: float, binary: bool = True) -> int | None:
    """Return how many texts certify a rule with such an observed risk.

    None where the risk is not below epsilon: no number of texts does.
    """
    if risk >= epsilon:
        return None
    enough = 1
    while not _passes(risk, epsilon, delta, binary, enough):
        enough *= 2
    too_few = enough // 2
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if _passes(risk, epsilon, delta, binary, middle):
            enough = middle
        else:
            too_few = middle
    return enough


def _passes(risk: float, epsilon: float, delta: float, binary: bool, n: int) -> bool:
    # A product just above a whole number of texts is that number.
    total = min(n, math.ceil(risk * n - 1e-9)) if binary else risk * n
    return bool(p_values(np.array([total / n]), n, epsilon, binary)[0] <= delta)
