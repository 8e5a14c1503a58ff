"""The node of `serve.one_graph` that runs all segments, for rows that leave at the last exit.

Nobody asks the exits before. So all layers lie in one branch, as in a model that has one exit, and
go through one buffer. Their weights are not there twice: what kernels make of a weight ONNX Runtime
keeps once in a session (https://github.com/microsoft/onnxruntime/pull/23069), and it reads what
they do not change from the segments' files.
"""

from collections.abc import Sequence

import numpy as np

from serve.branches import SegmentOutputs, either
from serve.graph_ports import AGAIN, FIRST, GAPS, hidden_after
from serve.manifest import HIDDEN, HIDDEN_OUT, KEEP
from serve.onnx_renaming import made_in, renamed
from serve.onnx_wire import BOOL, OUTPUT, VALUE_INFO, fields
from serve.onnx_writing import Pieces, constant, node, value
from serve.segment_branch import runs
from serve.segment_model import SegmentModel, reads_odd

_ALL_RUN = "all run"


def said_at_once(name: str) -> str:
    """Return the value that holds what the last head says under a name, if all run at once."""
    return f"{name} at once"


def full_run(segments: Sequence[SegmentModel], outputs: SegmentOutputs) -> Pieces:
    """Return the node.

    It gives what is `said_at_once`, and whether the first segment `runs` by itself.

    Args:
        segments: all of them.
        outputs: of any segment.
    """
    given = [*map(said_at_once, outputs.said), runs(0)]
    evened = all_odd(segments)
    idle = [
        *outputs.no_rows("unless at once"),
        *node("Equal", [FIRST, "number 0"], ["first by itself"]),
        value(OUTPUT, "first by itself", BOOL, 0),
    ]
    return [
        constant("number 0", np.array(0, np.int64)),
        *node("Less", [FIRST, "number 0"], [_ALL_RUN]),
        *either(_ALL_RUN, given, [*_all_of(segments, outputs), *_no_other_run(evened)], idle),
    ]


def all_odd(segments: Sequence[SegmentModel]) -> bool:
    """Tell whether all segments together read an odd number of the inputs that rows have."""
    inputs = {name for segment in segments for name in segment.inputs} - {HIDDEN, KEEP}
    return reads_odd(memoryview(b"".join(_parts(segments))), inputs)


def _parts(segments: Sequence[SegmentModel]) -> list[memoryview]:
    """Return what runs of each segment, without what is known of its values.

    That tells sizes by names, which mean other sizes in other segments.
    """
    parts: list[memoryview] = []
    for segment in segments:
        head = segment.head if segment is segments[-1] else []
        known = fields(memoryview(b"".join([*segment.layers, *head])))
        kept = [whole for number, whole, *_ in known if number != VALUE_INFO]
        parts.append(memoryview(b"".join(kept)))
    return parts


def _all_of(segments: Sequence[SegmentModel], outputs: SegmentOutputs) -> Pieces:
    pieces: Pieces = []
    names: dict[str, str] = {}
    for number, part in enumerate(_parts(segments)):
        entered = {hidden_after(number - 1): names.get(HIDDEN_OUT, HIDDEN_OUT)} if number else {}
        names = {name: f"{name} in {number}" for name in made_in(part)}
        pieces += renamed(part, names | entered)
    pieces += [outputs.like(name, OUTPUT, names.get(name, name)) for name in outputs.said]
    return pieces


def _no_other_run(evened: bool) -> Pieces:
    """Return that no segment runs by itself, told so that layouts of memory are told apart.

    Args:
        evened: as for `serve.segment_branch`.
    """
    parts: Pieces = node("Size", [GAPS], ["laid out for"])
    if evened:
        parts += node("Size", [AGAIN], ["no less"])
    sizes = ["laid out for", *(["no less"] if evened else [])]
    return [
        *parts,
        *node("Min", sizes, ["some size"]),
        *node("Less", ["some size", "number 0"], ["none by itself"]),
        value(OUTPUT, "none by itself", BOOL, 0),
    ]
