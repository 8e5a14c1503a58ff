"""How long the texts are: the token lengths of SST-2's development set.

Counted with BERT's uncased WordPiece vocabulary, [CLS] and [SEP] included, over the 872
sentences of GLUE's SST-2 (Socher et al. 2013). Only these counts are kept, none of the text.
"""

import numpy as np
from numpy.typing import NDArray

SHORTEST = 4
# fmt: off
# Sentences of 4, 5, 6, ... 55 tokens.
SENTENCES = (
    2, 1, 2, 7, 12, 12, 22, 17, 28, 20, 28, 23, 23, 23, 34, 29, 38, 29, 31, 25, 30, 37, 31, 33,
    27, 26, 27, 23, 24, 16, 21, 21, 15, 13, 12, 17, 17, 18, 8, 4, 14, 3, 3, 5, 4, 5, 2, 1, 2, 4,
    2, 1,
)
# fmt: on


def draw_lengths(num: int, seed: int) -> NDArray[np.int64]:
    """Return so many token lengths, distributed as in SST-2 dev; (num,)."""
    shares = np.array(SENTENCES) / sum(SENTENCES)
    tokens = SHORTEST + np.arange(len(SENTENCES))
    return np.random.default_rng(seed).choice(tokens, num, p=shares)
