import json
from pathlib import Path

import typer
from typer.testing import CliRunner

from loadtest.bench.inputs import Shape
from loadtest.bench.segments.__main__ import bench, compare
from serve.bundle.loader import Bundle


def test_every_shape_that_fits_is_measured(bundle: Bundle) -> None:
    shapes = (Shape(1, 4), Shape(2, 64), Shape(1, 128))
    document = compare(bundle, "fp32", num_threads=1, seconds=0, shapes=shapes)
    assert [(s["rows"], s["tokens"]) for s in document["shapes"]] == [(1, 4), (2, 64)]
    assert document["exit_layers"] == [1, 2, 3, 4]
    for shape in document["shapes"]:
        assert shape["fp32_segments_ms"] is None
        names = ("segments_ms", "each_segment_ms", "one_graph_ms", "ratio")
        assert min(shape[name] for name in names) > 0
        *shares, whole = shape["exit_shares"]
        assert len(shares) == 3
        assert min(shares) > 0
        assert whole == 1


def test_the_command_prints_a_table_and_writes_json(bundle: Bundle, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(bench)
    figures = tmp_path / "bench.json"
    arguments = [str(bundle.folder), "--precision", "int8", "--seconds", "0"]
    result = CliRunner().invoke(app, [*arguments, "--json", str(figures)], catch_exceptions=False)
    words = ["tiny, int8", "exit 3 (0.75)", "one call a segment", "times faster than fp32"]
    assert [word for word in words if word not in result.stdout] == []
    document = json.loads(figures.read_text())
    assert (document["bundle"], document["precision"]) == ("tiny", "int8")
    assert all(shape["fp32_segments_ms"] > 0 for shape in document["shapes"])
    assert len(document["shapes"]) == 4, "all but 1 x 128"
