"""How many tokens each request has."""

import numpy as np
from numpy.typing import NDArray

LONGEST = 66
# Many short texts, few long ones, special tokens included; the logarithm is normal.
_MEDIAN, _SIGMA = 23.0, 0.45


def sst2_lengths(
    num: int, seed: int | np.random.Generator, longest: int = LONGEST
) -> NDArray[np.int64]:
    """Return so many token lengths as in SST-2's development set; longer draws are cut."""
    drawn = np.random.default_rng(seed).lognormal(np.log(_MEDIAN), _SIGMA, num)
    return np.clip(np.rint(drawn), 3, longest).astype(np.int64)
