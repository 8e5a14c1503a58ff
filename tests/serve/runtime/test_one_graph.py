"""Segments joined in one graph: which of them run, and what is refused."""

import math
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper, parser

from serve.bundle.loader import Bundle, load_bundle
from serve.engine.runner import ASKED
from serve.errors import InvalidBundle
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.graph_ports import (
    FIRST,
    FIRST_HIDDEN,
    FIRST_KEEP,
    FIRST_UNASKED,
    GAPS,
    STARTS,
    STRAIGHT,
    UNASKED,
    every,
    hidden_after,
)
from serve.runtime.one_graph import one_graph
from serve.runtime.straight_run import may_go_straight

# Adds its number to what it is given, and says the sum: how far logits are apart stays as it was.
FIRST_SEGMENT = """
    <ir_version: 10, opset_import: ["" : 18]>
    segment (float[rows{axes}] begin)
    => (float[rows{axes}] hidden_out, float[rows{axes}] logits)
    <float[1] own = {{{number}.0}}>
    {{ hidden_out = Add(begin, own)
       logits = {head}(hidden_out) }}
"""
SEGMENT = """
    <ir_version: 10, opset_import: ["" : 18]>
    segment (float[rows_in{axes}] hidden, int64[rows] keep)
    => (float[rows{axes}] hidden_out, float[rows{axes}] logits)
    <float[1] own = {{{number}.0}}>
    {{ kept = Gather(hidden, keep)
       hidden_out = Add(kept, own)
       logits = {head}(hidden_out) }}
"""
# Beside its sum a segment may have more, in which sizes are others.
LONGER = r"""sum = \1
       many = Concat<axis: int = 0>(sum)
       sines = Sin(many)
       cosines = Cos(sines)
       largest = ReduceMax<keepdims: int = 0>(cosines, axis)
       hidden_out = Add(sum, largest)
"""
# What a segment's author may well call a value.
LIKELY = ("segment", "first", "last", "next", "gap", "gaps", "unasked", "two", "largest")
Models = dict[str, memoryview]


def models(
    number: int,
    axes: str = ", labels",
    texts: tuple[str, str] = (FIRST_SEGMENT, SEGMENT),
    head: str = "Identity",
) -> Models:
    filled = [texts[min(k, 1)].format(number=k, axes=axes, head=head) for k in range(number)]
    parsed = [parser.parse_model(text) for text in filled]
    return {f"{k}.onnx": memoryview(m.SerializeToString()) for k, m in enumerate(parsed)}


def opened(chain: Models, num_labels: int = 2) -> ort.InferenceSession:
    joined = one_graph(chain, num_labels).model
    onnx.checker.check_model(joined, full_check=True)
    return ort.InferenceSession(joined, providers=["CPUExecutionProvider"])


def asking(gaps: Sequence[float]) -> dict[str, np.ndarray]:
    """Return inputs that ask the exits whose gaps are finite."""
    unasked = np.isinf(gaps)
    asked = np.where(unasked, 0, gaps).astype(np.float32)
    return {GAPS: asked, UNASKED: unasked, FIRST_UNASKED: unasked[:1]}


def by_steps(graph: onnx.GraphProto) -> onnx.GraphProto:
    """Return the graph in which exit after exit may end the run."""
    (either,) = (node for node in graph.node if node.op_type == "If")
    return next(a.g for a in either.attribute if a.name == "else_branch")


def run(
    session: ort.InferenceSession,
    first: int,
    hidden: object,
    gaps: Sequence[float],
    keep: Sequence[int] | None = None,
) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """Return the hidden states of each segment that ran, and what each head said that ran."""
    states = np.array(hidden, np.float32)
    kept = np.array(range(len(states)) if keep is None else keep, np.int64)
    rows = len(kept) if first else len(states)
    feeds = {
        "begin": states,
        FIRST: np.array(first, np.int64),
        FIRST_HIDDEN: states,
        FIRST_KEEP: kept,
        STARTS: np.array(not first),
        **asking(gaps),
    }
    known = [output.name for output in session.get_outputs()]
    names = [name for name in known if name != every("logits")]
    *after, said = session.run([*names, every("logits")], feeds)
    ran = {k: one for k, one in enumerate(after) if len(one)}
    assert all(names[k] == hidden_after(k) for k in ran)
    return ran, said.reshape(-1, rows, *said.shape[1:])


def num_run(session: ort.InferenceSession, hidden: object, gaps: Sequence[float]) -> int:
    """Return how many segments have run from the first on, if every exit is asked."""
    return len(run(session, 0, hidden, gaps)[1])


def sums(first: int, number: int) -> list[int]:
    return np.cumsum(range(first, number)).tolist()


@pytest.mark.parametrize("number", [1, 2, 3, 6, 12])
def test_graph_runs_the_segment_that_it_is_asked_for(number: int) -> None:
    session, rows = opened(models(number)), [[10, 11], [20, 22], [30, 33]]
    for first in range(number):
        ran, said = run(session, first, rows, [0] * number, keep=[2, 0])
        alone = [[30 + first, 33 + first], [10 + first, 11 + first]] if first else rows
        assert said.tolist() == [alone]
        here = {k: one.tolist() for k, one in ran.items() if k >= first}
        assert here == ({first: alone} if first < number - 1 else {})


def test_what_nobody_reads_may_be_left_out() -> None:
    session, gaps = opened(models(3)), np.array([ASKED, ASKED, 0], np.float32)
    rows = np.array([[10, 11], [20, 22]], np.float32)
    (said,) = session.run([every("logits")], {"begin": rows, GAPS: gaps})
    assert said.reshape(3, 2, 2).tolist() == [(rows + s).tolist() for s in sums(0, 3)]
    later = {FIRST: np.array(1), STARTS: np.array(False), GAPS: gaps}
    entered = {FIRST_HIDDEN: rows, FIRST_KEEP: np.array([1])}
    (said,) = session.run([every("logits")], later | entered)
    assert said.tolist() == [(rows[1] + s).tolist() for s in sums(1, 3)]


@pytest.mark.parametrize("number", [1, 2, 3, 6, 12])
def test_graph_runs_on_from_any_segment_to_the_last(number: int) -> None:
    session, gaps = opened(models(number)), [ASKED] * (number - 1) + [0]
    for first in range(1, number):
        ran, said = run(session, first, [[10, 11], [20, 22], [30, 33]], gaps, keep=[2, 0])
        expected = [[[30 + s, 33 + s], [10 + s, 11 + s]] for s in sums(first, number)]
        assert said.tolist() == expected
        assert [ran[k].tolist() for k in range(first, number - 1)] == expected[:-1]


@pytest.mark.parametrize(
    ("number", "stretches"),
    [(1, [1]), (2, [1, 1]), (3, [1, 2]), (4, [1, 2, 1]), (12, [1, 2, 4, 5])],
)
def test_a_run_that_ends_passes_what_follows_its_stretch_in_one(
    number: int, stretches: list[int]
) -> None:
    """Each branch that does not run takes time."""
    graph = onnx.load_from_string(one_graph(models(number), 2).model).graph
    graph = by_steps(graph)
    found = []
    while graph:
        chain = [node for node in graph.node if node.op_type == "If"]
        *segments, last = chain
        follows = last.input[0].startswith("stretch")
        found.append(len(segments) + (not follows))
        graph = next(a.g for a in last.attribute if a.name == "then_branch") if follows else None
    assert found == stretches


@pytest.mark.parametrize("unasked", [(0,), (1, 2), (0, 1, 2, 3), (0, 2)])
def test_heads_that_nobody_asks_do_not_run_and_end_nothing(unasked: tuple[int, ...]) -> None:
    session = opened(models(5))
    gaps = [math.inf if k in unasked else ASKED for k in range(4)]
    # However far apart, and whether they are numbers or none.
    for row in ([1, 2], [0, 1e30], [math.nan, 0]):
        ran, said = run(session, 0, [row], [*(math.inf for _ in gaps), 0])
        assert len(said) == 1
        assert list(ran) == [0, 1, 2, 3]
    ran, said = run(session, 0, [[1, 2]], [*gaps, 0])
    asked = [s for k, s in enumerate(sums(0, 5)) if k not in unasked]
    assert said.tolist() == [[[1 + s, 2 + s]] for s in asked]
    assert list(ran) == [0, 1, 2, 3]


def with_a_head_that_fails(chain: Models, index: int) -> Models:
    file = f"{index}.onnx"
    model = onnx.load_from_string(bytes(chain[file]))
    model.graph.node[-1].op_type = "Gather"
    model.graph.node[-1].input.append("five")
    model.graph.initializer.append(numpy_helper.from_array(np.array([5]), "five"))
    return chain | {file: memoryview(model.SerializeToString())}


def straight(number: int, exit_: int) -> dict[str, np.ndarray]:
    """Return inputs for a run to an exit, counted from 0."""
    return {STRAIGHT: np.array(True), **asking([math.inf] * exit_ + [0] * (number - exit_))}


@pytest.mark.parametrize("number", [1, 2, 3, 6, 8, 9, 12, 16, 17, 24])
def test_a_straight_run_says_what_one_by_steps_does(number: int) -> None:
    session = opened(models(number))
    rows = np.array([[10, 11], [20, 22]], np.float32)
    for exit_ in filter(lambda k: may_go_straight(k, number), range(number)):
        names = [output.name for output in session.get_outputs()]
        values = session.run(names, {"begin": rows, **straight(number, exit_)})
        found = dict(zip(names, values, strict=True))
        after = (rows + sums(0, number)[exit_]).tolist()
        assert found.pop(every("logits")).tolist() == after
        if exit_ < number - 1:
            assert found.pop(hidden_after(0)).tolist() == after
        assert not any(len(hidden) for hidden in found.values())


def test_straight_ways_lead_to_every_exit_of_a_deep_model_and_to_the_last_of_any() -> None:
    assert [k for k in range(8) if may_go_straight(k, 8)] == [7]
    assert [k for k in range(9) if may_go_straight(k, 9)] == [*range(9)]


@pytest.mark.parametrize(
    ("number", "exit_", "index"), [(3, 2, 0), (3, 2, 1), (3, 2, 2), (9, 5, 3), (9, 5, 5), (9, 5, 6)]
)
def test_a_straight_run_asks_no_head_but_the_last(number: int, exit_: int, index: int) -> None:
    session = opened(with_a_head_that_fails(models(number), index))
    feeds = {"begin": np.ones((1, 2), np.float32), **straight(number, exit_)}
    with nullcontext() if index != exit_ else pytest.raises(Exception, match="Gather"):
        (said,) = session.run([every("logits")], feeds)
        assert said.tolist() == [[1 + sums(0, number)[exit_]] * 2]


def test_segments_may_call_different_sizes_by_the_same_name() -> None:
    texts = [re.sub(r"hidden_out = (Add\(\w+, own\))", LONGER, t) for t in (FIRST_SEGMENT, SEGMENT)]
    texts = [
        text.replace("<float[1] own", "<int64[1] axis = {{0}}, float[1] own") for text in texts
    ]
    chain = models(2, texts=(texts[0], texts[1]))
    for number, file in enumerate(chain):
        model = onnx.load_from_string(bytes(chain[file]))
        (repeated,) = (node for node in model.graph.node if node.op_type == "Concat")
        repeated.input[:] = ["sum"] * (3 + 4 * number)
        for name in ("many", "sines", "cosines"):
            known = onnx.helper.make_tensor_value_info(name, 1, ["n", "labels"])
            model.graph.value_info.append(known)
        chain[file] = memoryview(model.SerializeToString())
    session, rows = opened(chain), np.random.default_rng(0).random((4, 64), np.float32)
    feeds = {"begin": rows, **asking([math.inf, 0])}
    (by_exits,) = session.run([every("logits")], feeds)
    (at_once,) = session.run([every("logits")], feeds | straight(2, 1))
    np.testing.assert_array_equal(by_exits, at_once)


def test_heads_that_fail_are_not_heard_of_where_nobody_asks_them() -> None:
    session = opened(with_a_head_that_fails(models(2), 0))
    _, said = run(session, 0, [[1, 2]], [math.inf, 0])
    assert said.tolist() == [[[2, 3]]]
    with pytest.raises(Exception, match="Gather"):
        run(session, 0, [[1, 2]], [0, 0])


def test_gaps_beyond_the_last_segment_are_not_looked_at() -> None:
    session = opened(models(3))
    for more in ([], [0], [math.inf] * 9):
        assert num_run(session, [[1, 2]], [ASKED, ASKED, 0, *more]) == 3


NEAR = [float(np.nextafter(np.float32(2), np.float32(end))) for end in (0, 9)]


@settings(deadline=None)
@given(
    rows=st.lists(st.sampled_from([[5, 3], [1, 3], [4, 4], [0, 1]]), min_size=1, max_size=4),
    gaps=st.lists(st.sampled_from([0, 1, 2, *NEAR, 3, ASKED]), min_size=5, max_size=5),
    first=st.integers(0, 5),
    session=st.shared(st.builds(lambda: opened(models(6)))),
)
def test_it_goes_on_exactly_while_the_widest_gap_of_all_rows_is_below_the_exits(
    rows: list[list[int]], gaps: list[float], first: int, session: ort.InferenceSession
) -> None:
    widest = max(abs(one - other) for one, other in rows)
    ends = [index for index in range(first, 6) if not widest < [*gaps, 0][index]]
    _, said = run(session, first, rows, [*gaps, 0])
    assert len(said) == ends[0] - first + 1


def test_exit_that_is_only_asked_ends_nothing_however_far_apart_its_logits_are() -> None:
    assert num_run(opened(models(2)), [[0, 3e38]], [ASKED, 0]) == 2


def test_of_many_labels_the_two_largest_count() -> None:
    session = opened(models(3), num_labels=4)
    assert num_run(session, [[-50, 5, 1, 3]], [2, 2, 0]) == 1
    assert num_run(session, [[-50, 5, 1, 3]], [2.5, 2, 0]) == 2


@pytest.mark.parametrize(
    "strange", [[math.nan, 0], [0, math.nan], [math.inf, 0], [math.inf, math.inf], [-math.inf] * 2]
)
def test_logits_that_tell_nothing_go_back_to_the_host(strange: list[float]) -> None:
    assert num_run(opened(models(2)), [strange], [ASKED, 0]) == 1


@pytest.mark.parametrize("axes", ["", ", tokens, labels"])
@pytest.mark.parametrize("sign", [-1, 0, 1])
def test_where_labels_are_not_told_apart_a_gap_of_0_ends_the_run_and_a_wide_one_does_not(
    axes: str, sign: int
) -> None:
    session = opened(models(3, axes), num_labels=0)
    hidden = sign * np.full((2, 3, 4) if axes else 2, 7)
    for gaps in ([0, 0, 0], [ASKED, 0, 0], [ASKED, ASKED, 0]):
        assert num_run(session, hidden, gaps) == gaps.index(0) + 1


@pytest.mark.parametrize("name", LIKELY)
def test_a_segments_names_are_its_own(name: str) -> None:
    for value in ("own", "kept"):
        texts = FIRST_SEGMENT.replace(value, name), SEGMENT.replace(value, name)
        assert num_run(opened(models(3, texts=texts)), [[1, 2]], [2, 2, 0]) == 3


def test_operator_sets_of_any_segment_are_there() -> None:
    chain = models(2)
    odd = onnx.load_from_string(bytes(chain["1.onnx"]))
    odd.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    chain["1.onnx"] = memoryview(odd.SerializeToString())
    joined = onnx.load_from_string(one_graph(chain, 2).model)
    assert {o.domain: o.version for o in joined.opset_import} == {"": 18, "com.microsoft": 1}


def test_segments_with_other_versions_of_operators_are_no_chain() -> None:
    chain = models(2)
    odd = onnx.load_from_string(bytes(chain["1.onnx"]))
    odd.opset_import[0].version = 17
    chain["1.onnx"] = memoryview(odd.SerializeToString())
    with pytest.raises(ValueError, match=r"^1\.onnx: another version of ai\.onnx than"):
        one_graph(chain, 2)


def test_weights_stay_in_their_files(bundle: Bundle) -> None:
    paths = bundle.segment_paths("fp32")
    files = {path.name: memoryview(path.read_bytes()) for path in paths}
    assert len(one_graph(files, 3).model) < 0.5 * sum(map(len, files.values()))


HOLDING = """
import sys
from pathlib import Path
import onnxruntime
from serve.runtime.one_graph import one_graph
from serve.runtime.process_memory import loading_weights

def own_bytes():
    return 1024 * int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0])

folder = Path(sys.argv[1])
files = {path.name: memoryview(path.read_bytes()) for path in sorted(folder.iterdir())}
joined = one_graph(files, 0).model
options, before = onnxruntime.SessionOptions(), own_bytes()
options.add_session_config_entry(
    "session.model_external_initializers_file_folder_path", str(folder)
)
with loading_weights():
    session = onnxruntime.InferenceSession(joined, options, providers=["CPUExecutionProvider"])
print(own_bytes() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells of memory")
@pytest.mark.parametrize("number", [3, 9])
def test_weights_are_held_once_although_branches_of_two_kinds_run_them(
    tmp_path: Path, number: int
) -> None:
    texts = FIRST_SEGMENT.replace("Add", "MatMul"), SEGMENT.replace("Add", "MatMul")
    for file, model in models(number, texts=texts).items():
        heavy = onnx.load_from_string(bytes(model))
        weights = np.full((2048, 2048), 1 + int(file[0]), np.float32)
        heavy.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "own"))
        onnx.save(heavy, tmp_path / file)
    command = [sys.executable, "-c", HOLDING, str(tmp_path)]
    held = subprocess.run(command, capture_output=True, check=True, timeout=60, text=True).stdout
    assert 0.9 < int(held) / (number * weights.nbytes) < 1.4


def other_outputs(name: str) -> memoryview:
    texts = FIRST_SEGMENT.replace(name, "odd"), SEGMENT.replace(name, "odd")
    return models(2, texts=texts)["1.onnx"]


def test_segments_with_other_outputs_are_no_chain() -> None:
    with pytest.raises(ValueError, match=r"odd\.onnx: not the outputs"):
        one_graph({**models(1), "odd.onnx": other_outputs("logits")}, 2)


@pytest.mark.parametrize("before", [0, 1])
def test_segment_that_passes_nothing_on_is_none(before: int) -> None:
    with pytest.raises(ValueError, match=r"odd\.onnx: no output hidden_out"):
        one_graph({**models(before), "odd.onnx": other_outputs("hidden_out")}, 2)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 100,
        b"\x0f",
        b"not a model",
        b"\x3a\x02\x0a\x00",
        b"\x3a\x02\x62\x00",
        bytes(models(1)["0.onnx"])[:-1],
    ],
)
def test_what_is_no_model_is_refused_by_its_files_name(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"^odd\.onnx: no "):
        one_graph({**models(1), "odd.onnx": memoryview(content)}, 2)


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"not a model", b"\x3a\x02\x0a\x00"])
def test_files_that_are_no_chain_are_refused(
    bundle_copy: Callable[..., Path], content: bytes
) -> None:
    broken = load_bundle(bundle_copy())
    path = broken.segment_paths("fp32")[1]
    path.write_bytes(content)
    with pytest.raises(InvalidBundle, match=f"fp32/{path.name}: no"):
        CpuRunner(broken, "fp32", 2)
