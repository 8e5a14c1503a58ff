"""Inputs and outputs of `serve.one_graph` beside the segments' own.

No value of a segment has a space in its name, and all here have, lest they be mixed up.
"""

from typing import Final

# The segment to begin with, counted from 0: int64, a scalar; 0 if it is left out.
FIRST: Final = "first segment"
# Given for it, all segments run, and no head but the last.
AT_ONCE: Final = -1
# The hidden states it begins with, and which rows of them go on.
FIRST_HIDDEN: Final = "first hidden"
FIRST_KEEP: Final = "first keep"
# (segments or more,) float32: how far apart the two largest logits of some row must be, at least,
# for the run to end after a segment. 0 ends it anyhow; infinity does not, and its head does not
# run. More than one per segment are not looked at.
GAPS: Final = "all gaps"
# Not an input, but the first segment's first one, if it is to be read once more.
AGAIN: Final = "input again"


def every(said: str) -> str:
    """Return the output that holds what heads say under this name.

    It is (heads that ran * rows, ...): what the first of them says of all rows, and so on.
    """
    return f"every {said}"


def hidden_after(segment: int) -> str:
    """Return the output that holds the hidden states after a segment but the last; if it ran."""
    return f"hidden after {segment}"
