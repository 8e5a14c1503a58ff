"""Inputs and outputs of `serve.runtime.one_graph` beside the segments' own.

No value of a segment has a space in its name, and all here have, lest they be mixed up.
"""

from typing import Final

# The segment to begin with, counted from 0: int64, a scalar; 0 if it is left out.
FIRST: Final = "first segment"
# Whether that one is the first: bool, a scalar; true if it is left out.
STARTS: Final = "run starts"
# Whether, instead of all that, segments run straight from the first to the first exit that is asked
# (see `serve.runtime.straight_run`): bool, a scalar; false if it is left out. Then the hidden
# states after that exit are where others are after the first.
STRAIGHT: Final = "run is straight"
# The hidden states it begins with, and which rows of them go on.
FIRST_HIDDEN: Final = "first hidden"
FIRST_KEEP: Final = "first keep"
# (segments or more,) bool: whether nobody asks the exit after a segment, so that its head does not
# run and it ends nothing. More than one per segment are not looked at. Somebody asks all if it is
# left out.
UNASKED: Final = "all unasked"
# (1 or more,) bool: the same of the first segment, for which the other is not looked at.
FIRST_UNASKED: Final = "first unasked"
# (segments,) float32: how far apart the two largest logits of some row must be, at least, for the
# run to end after a segment whose exit is asked. 0 ends it anyhow; it is 0 if it is left out.
GAPS: Final = "all gaps"


def every(said: str) -> str:
    """Return the output that holds what heads say under this name.

    It is (heads that ran * rows, ...): what the first of them says of all rows, and so on.
    """
    return f"every {said}"


def hidden_after(segment: int) -> str:
    """Return the output that holds the hidden states after a segment but the last; if it ran."""
    return f"hidden after {segment}"
