"""Positions that are counted are the first rows of a table."""

import numpy as np
import onnx_ir as ir
import pytest

from export.kernels.positions import slice_positions
from tests.export.support.graphs import open_graph

# Ten positions of width 4, as BERT looks them up; how they are numbered is for each test to say.
MODEL = """
    <ir_version: 10, opset_import: ["" : 18]>
    embeddings (float[rows, tokens, 4] words, float[rows, tokens, 4] types)
    => (float[rows, tokens, 4] sum)
    <float[10, 4] table = {{{table}}}, int64[1, {count}] numbers = {{{numbers}}},
     int64[1] start = {{{start}}}, int64[1] axis = {{{axis}}}, int64[1] step = {{{step}}}>
    {{ tokens = Shape <start = 1, end = 2> (words)
       counted = Slice(numbers, start, tokens, axis, step)
       found = Gather <axis = 0> (table, counted)
       both = Add(words, types)
       sum = Add(both, found) }}
"""


def model(
    numbers: range | list[int] = range(10), start: int = 0, axis: int = 1, step: int = 1
) -> ir.Model:
    def listed(values: range | list[int]) -> str:
        return ", ".join(map(str, values))

    shape = {"start": start, "axis": axis, "step": step, "count": len(numbers)}
    table = ", ".join(f"{value}.5" for value in range(40))
    return ir.from_onnx_text(MODEL.format(table=table, numbers=listed(numbers), **shape))


def run(given: ir.Model, tokens: int) -> np.ndarray:
    generator = np.random.default_rng(tokens)
    words, types = (generator.standard_normal((3, tokens, 4)).astype(np.float32) for _ in "ab")
    return open_graph(given).run(None, {"words": words, "types": types})[0]


def ops(given: ir.Model) -> list[str]:
    return [node.op_type for node in given.graph]


@pytest.mark.parametrize("numbers", [range(10), range(2, 10), range(9, 10)])
def test_counted_positions_are_cut_from_the_table_and_all_is_added_at_once(numbers: range) -> None:
    given, found = model(numbers), model(numbers)
    slice_positions(found)
    assert "Gather" not in ops(found)
    assert "Sum" in ops(found)
    for tokens in {1, len(numbers)}:
        np.testing.assert_array_equal(run(found, tokens), run(given, tokens))


@pytest.mark.parametrize(
    "other",
    [
        {"numbers": [0, 2, 1, 3, 4, 5, 6, 7, 8, 9]},
        {"numbers": range(9)},
        {"start": 1},
        {"axis": 0},
        {"step": 2},
    ],
)
def test_positions_that_are_not_counted_are_looked_up(other: dict) -> None:
    given = model(**other)
    slice_positions(given)
    assert ops(given) == ops(model(**other))
