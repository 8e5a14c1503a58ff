"""Segments taken apart: what is done on entering, in the layers, in the head; what is refused."""

import math
import os
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, parser
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from serve.bundle.loader import Bundle
from serve.engine.runner import ASKED
from serve.runtime.graph_ports import (
    FIRST,
    FIRST_HIDDEN,
    FIRST_KEEP,
    FIRST_UNASKED,
    GAPS,
    STARTS,
    UNASKED,
    every,
)
from serve.runtime.one_graph import one_graph
from tests.serve.runtime.test_one_graph import (
    FIRST_SEGMENT,
    by_steps,
    models,
    num_run,
    opened,
    run,
    straight,
)

SEGMENT = """
    <ir_version: 10, opset_import: ["" : 18]>
    segment (float[rows_in, labels] hidden, int64[rows] keep)
    => (float[rows, labels] hidden_out, float[rows, labels] logits)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, float[1] more = {{1.0}},
     bool yes = {{1}}>
    {{ {nodes} }}
"""
BEGIN = "kept = Gather(hidden, keep)"
END = "hidden_out = Add(kept, more)  logits = Identity(hidden_out)"
CUT = (
    "size = Shape<start: int = 1, end: int = 2>(attention_mask)  kept = Slice(all, zero, size, one)"
)


MASK = "int64[rows, labels] attention_mask"
MASKED = "other = Cast<to: int = 9>(attention_mask)"
SAYS = "logits = Identity(hidden_out)"


def chain_of(nodes: str, reads_mask: bool = False) -> dict[str, memoryview]:
    texts = [FIRST_SEGMENT.format(number=0, axes=", labels", head="Identity")]
    segment = SEGMENT.replace("int64[rows] keep", f"int64[rows] keep, {MASK}")
    texts.append((segment if reads_mask else SEGMENT).format(nodes=nodes))
    models = [parser.parse_model(text).SerializeToString() for text in texts]
    return {f"{k}.onnx": memoryview(model) for k, model in enumerate(models)}


def operators(model: ModelProto | onnx.GraphProto) -> list[str]:
    """Return the operators of a graph and of those inside, in order."""
    graph = model.graph if isinstance(model, ModelProto) else model
    found: list[str] = []
    for node in graph.node:
        found.append(node.op_type)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += operators(attribute.g)
    return found


def segment_nodes(graph: onnx.GraphProto) -> list[dict[str, onnx.GraphProto]]:
    """Return the branches of the nodes that run segments, first to last."""
    found: list[dict[str, onnx.GraphProto]] = []
    for node in graph.node:
        branches = {attribute.name: attribute.g for attribute in node.attribute}
        if node.op_type == "If" and node.input[0].startswith(("segment", STARTS)):
            found.append(branches)
        elif node.op_type == "If":
            found += segment_nodes(branches["then_branch"])
    return found


def test_rows_are_chosen_on_entering_and_at_no_other_time(bundle: Bundle) -> None:
    for precision in ("fp32", "int8"):
        paths = bundle.segment_paths(precision)  # type: ignore[arg-type]
        files = {path.name: memoryview(path.read_bytes()) for path in paths}
        joined = onnx.load_from_string(one_graph(files, 3).model)
        segments = segment_nodes(by_steps(joined.graph))
        assert len(segments) == len(paths)
        for branches in segments[1:]:
            assert "Slice" not in operators(branches["then_branch"])
            reads = [name for inner in branches["then_branch"].node for name in inner.input]
            assert not {"hidden", "keep", "first hidden", "first keep"}.intersection(reads)
        for branches in segments[:-1]:
            assert operators(branches["else_branch"]).count("Slice") == 1


def outer_reads(graph: onnx.GraphProto) -> set[str]:
    """Return what a graph reads, and those inside, that is not its own."""
    reads: set[str] = set()
    for node in graph.node:
        reads.update(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                reads |= outer_reads(attribute.g)
    given = {name for node in graph.node for name in node.output}
    return reads - given - {tensor.name for tensor in graph.initializer}


def straight_way(joined: ModelProto) -> onnx.GraphProto:
    (either,) = (node for node in joined.graph.node if node.op_type == "If")
    return next(a.g for a in either.attribute if a.name == "then_branch")


@pytest.mark.parametrize("num_inputs", [1, 2, 3])
def test_it_tells_how_often_the_first_segment_reads_rows_and_tokens(num_inputs: int) -> None:
    names = ["begin", "second", "third"][:num_inputs]
    text = FIRST_SEGMENT.format(number=0, axes=", labels", head="Identity")
    inputs = ", ".join(f"float[rows, labels] {name}" for name in names)
    text = text.replace("float[rows, labels] begin", inputs)
    text = text.replace("Add(begin, own)", f"Sum({', '.join(names)}, own)")
    chain = {**chain_of(f"{BEGIN} {END}"), "0.onnx": memoryview(b"")}
    chain["0.onnx"] = memoryview(parser.parse_model(text).SerializeToString())
    graph = one_graph(chain, 2)
    assert graph.begins_odd == graph.all_odd == (num_inputs % 2 == 1)
    joined = onnx.load_from_string(graph.model)
    for reads in map(
        outer_reads, (segment_nodes(by_steps(joined.graph))[0]["then_branch"], straight_way(joined))
    ):
        assert reads.intersection([*names, FIRST_UNASKED]) == {*names, FIRST_UNASKED}


def graphs_that_run(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    """Return those of a way and of the ways inside it in which segments run."""
    inner = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    found = [one for way in inner for one in graphs_that_run(way)]
    return [*found, graph] if "Add" in [node.op_type for node in graph.node] else found


@pytest.mark.parametrize("number", [3, 12])
def test_every_graph_in_which_segments_run_reads_what_tells_its_layouts_apart(number: int) -> None:
    """By the length; see `Course.told`."""
    chain = models(number)
    joined = onnx.load_from_string(one_graph(chain, 2).model)
    ways = graphs_that_run(straight_way(joined))
    assert len(ways) > (number == 12)
    for graph in ways:
        own = UNASKED if "begin" not in outer_reads(graph) else FIRST_UNASKED
        assert own in outer_reads(graph)
    first, *others = segment_nodes(by_steps(joined.graph))
    assert len(others) == number - 1
    assert outer_reads(first["then_branch"]) & {UNASKED, FIRST_UNASKED} == {FIRST_UNASKED}
    for branches in others:
        assert outer_reads(branches["then_branch"]) & {UNASKED, FIRST_UNASKED} == {UNASKED}


@pytest.mark.parametrize(
    "nodes",
    [
        f"{BEGIN} {END} again = Gather(hidden, keep)",
        f"kept = Gather(hidden, keep) late = Identity(hidden) {END}",
        f"first = Identity(hidden) kept = Gather(first, keep) {END}",
        f"chosen = Identity(keep) kept = Gather(hidden, chosen) {END}",
        "hidden_out = Identity(hidden)  logits = Identity(hidden_out)",
    ],
)
def test_segment_must_begin_by_choosing_rows(nodes: str) -> None:
    with pytest.raises(ValueError, match=r"^1\.onnx: it must begin with Gather\(hidden, keep\)"):
        one_graph(chain_of(nodes), 2)


def branch_reads_hidden() -> Sequence[str]:
    branch = "branch () => (float[rows, labels] {name}) {{ {name} = Identity(kept) }}"
    then, other = branch.format(name="a"), branch.format(name="b")
    return (
        f"{BEGIN} same = If(yes) <then_branch: graph = {then}, else_branch: graph = {other}>",
        "hidden_out = Add(same, more)  logits = Identity(hidden_out)",
    )


def test_graph_within_that_reads_the_hidden_states_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^1\.onnx: If reads the hidden states from a graph"):
        one_graph(chain_of(" ".join(branch_reads_hidden())), 2)


def test_graph_within_may_read_what_the_layers_give() -> None:
    nodes = " ".join(branch_reads_hidden()).replace("Identity(kept)", "Identity(other)")
    chain = chain_of(nodes.replace(BEGIN, f"{BEGIN} other = Add(kept, more)"))
    _, said = run(opened(chain), 0, [[1, 2]], [math.inf, 0])
    assert said.tolist() == [[[3, 4]]]


@pytest.mark.parametrize(
    "nodes",
    [
        # It cuts to a width of its own, which is done every time.
        "all = Gather(hidden, keep) kept = Slice(all, zero, two, one)",
        # As wide as another input than the mask.
        "all = Gather(hidden, keep) size = Shape(more) kept = Slice(all, zero, size, zero)",
        # To a width of its own, though it looks at the mask's too.
        "all = Gather(hidden, keep) size = Shape(attention_mask) kept = Slice(all, zero, two, one)",
        # What it cuts off is read too.
        f"all = Gather(hidden, keep) {CUT.replace('kept', 'cut')} "
        "most = ReduceMax(all) kept = Max(cut, most)",
    ],
)
def test_what_is_no_compaction_is_part_of_the_layers(nodes: str) -> None:
    chain = chain_of(f"{nodes} {END}", reads_mask="attention_mask" in nodes)
    assert "Slice" in operators(then_branch(onnx.load_from_string(one_graph(chain, 2).model)))


def then_branch(joined: ModelProto) -> onnx.GraphProto:
    """Return the graph in which the last segment runs."""
    return segment_nodes(by_steps(joined.graph))[-1]["then_branch"]


def test_inputs_that_only_later_segments_read_are_counted_where_all_run() -> None:
    chain = chain_of(f"all = Gather(hidden, keep) {CUT} {END}", reads_mask=True)
    nodes = f"all = Gather(hidden, keep) {CUT} hidden_out = Where(other, kept, more) {SAYS}"
    chain |= {"2.onnx": chain_of(f"{MASKED} {nodes}", reads_mask=True)["1.onnx"]}
    joined = onnx.load_from_string(one_graph(chain, 2).model)
    assert outer_reads(straight_way(joined)) >= {"begin", "attention_mask"}
    graph = one_graph(chain, 2)
    assert (graph.begins_odd, graph.all_odd) == (True, False)


def test_padding_is_cut_on_entering() -> None:
    chain = chain_of(f"all = Gather(hidden, keep) {CUT} {END}", reads_mask=True)
    assert "Slice" not in operators(then_branch(onnx.load_from_string(one_graph(chain, 2).model)))
    feeds = {
        "begin": np.zeros((0, 1), np.float32),
        "attention_mask": np.ones((1, 2), np.int64),
        FIRST: np.array(1, np.int64),
        FIRST_HIDDEN: np.array([[1, 2, 3], [4, 5, 6]], np.float32),
        FIRST_KEEP: np.array([1], np.int64),
        STARTS: np.array(False),
    }
    (said,) = opened(chain).run([every("logits")], feeds)
    assert said.tolist() == [[5, 6]]


def test_heads_may_read_what_the_layers_begin_with() -> None:
    nodes = f"{BEGIN} hidden_out = Add(kept, more)  logits = Sub(kept, more)"
    session = opened({**chain_of(nodes), "2.onnx": chain_of(nodes)["1.onnx"]})
    _, said = run(session, 0, [[1, 2]], [ASKED, ASKED, 0])
    assert said.tolist() == [[[1, 2]], [[0, 1]], [[1, 2]]]


def test_values_that_layers_and_head_read_are_held_once() -> None:
    nodes = f"{BEGIN} hidden_out = Add(kept, more)  logits = Add(hidden_out, more)"
    joined = one_graph(chain_of(nodes), 2).model
    by_itself, with_the_first = 1 + 2, 1 + 2  # where it is held, and its readers
    assert joined.count(b"more") == by_itself + with_the_first


def test_heads_may_say_what_the_layers_give() -> None:
    nodes = f"{BEGIN} logits = Add(kept, more)  hidden_out = Add(logits, more)"
    session = opened({**chain_of(nodes), "2.onnx": chain_of(nodes)["1.onnx"]})
    for asked in (ASKED, math.inf):
        _, said = run(session, 0, [[1, 2]], [asked, asked, 0])
        assert said[-1].tolist() == [[4, 5]]
        assert len(said) == (1 if asked == math.inf else 3)


def test_what_leads_nowhere_is_left_out() -> None:
    nodes = f"{BEGIN} {END} nowhere = Tanh(kept)"
    assert "Tanh" not in operators(onnx.load_from_string(one_graph(chain_of(nodes), 2).model))
    assert num_run(opened(chain_of(nodes)), [[1, 2]], [2, 0]) == 2


def test_a_bundle_gives_the_same_graph_in_every_process(bundle: Bundle) -> None:
    folder = bundle.segment_paths("fp32")[0].parent
    script = (
        "import hashlib, pathlib, sys; from serve.runtime.one_graph import one_graph;"
        "paths = sorted(pathlib.Path(sys.argv[1]).glob('*.onnx'));"
        "files = {path.name: memoryview(path.read_bytes()) for path in paths};"
        "print(hashlib.sha256(one_graph(files, 3).model).hexdigest())"
    )
    command = [sys.executable, "-c", script, str(folder)]
    seeds = [dict(os.environ, PYTHONHASHSEED=seed) for seed in ("1", "2", "3")]
    said = [subprocess.run(command, env=env, check=True, capture_output=True) for env in seeds]
    assert len({done.stdout for done in said}) == 1


@pytest.mark.parametrize("missing", ["logits", "hidden_out"])
def test_output_that_no_node_gives_is_for_onnx_runtime_to_refuse(missing: str) -> None:
    chain = chain_of(f"{BEGIN} {END}")
    for file, whole in chain.items():
        model = onnx.load_from_string(bytes(whole))
        for node in model.graph.node:
            node.output[:] = ["odd" if name == missing else name for name in node.output]
        chain[file] = memoryview(model.SerializeToString())
    with pytest.raises(Fail, match=f"output.*{missing}"):
        ort.InferenceSession(one_graph(chain, 2).model, providers=["CPUExecutionProvider"])


TABLE = """
    <ir_version: 10, opset_import: ["" : 18]>
    segment (int64[rows, tokens] begin)
    => (float[rows, labels] hidden_out, float[rows, labels] logits)
    <float[2, 2] table = {1.0, 2.0, 3.0, 4.0}, int64 first = {0}, float[1] own = {5.0}>
    { column = Gather<axis: int = 1>(begin, first)
      row = Gather(table, column)
      {more}
      hidden_out = Add(row, own)
      logits = {head} }
"""
MORE = {
    "looked up": ("", "Identity(hidden_out)", True),
    "multiplied too": ("other = MatMul(row, table)", "Add(hidden_out, other)", False),
    "read by the head": ("", "MatMul(hidden_out, table)", False),
    "looked up by the head": ("", "Gather(table, column)", False),
}


@pytest.mark.parametrize("how", MORE)
def test_tables_that_layers_only_look_up_are_held_once(how: str) -> None:
    more, head, alone = MORE[how]
    text = TABLE.replace("{more}", more).replace("{head}", head)
    first = parser.parse_model(text).SerializeToString()
    chain = {**chain_of(f"{BEGIN} {END}"), "0.onnx": memoryview(first)}
    graph = onnx.load_from_string(one_graph(chain, 2).model).graph
    assert ("table looked up" in {tensor.name for tensor in graph.initializer}) == alone
    feeds = {"begin": np.array([[1, 0], [0, 1]]), GAPS: np.array([ASKED, 0], np.float32)}
    by_exits = opened(chain).run([every("logits")], feeds)[0]
    at_once = opened(chain).run([every("logits")], feeds | straight(2, 1))[0]
    assert by_exits[2:].tolist() == at_once.tolist() == [[9, 10], [7, 8]]
