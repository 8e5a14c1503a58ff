"""Cells that are kept, the page made of them, and one real run."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from loadtest.bench.inputs import padded
from loadtest.bench.one_graph import write_one_graph
from loadtest.bench.whole_model import OneGraph
from loadtest.benchmarks import __main__ as command
from loadtest.benchmarks.cells import Cells, Key
from loadtest.benchmarks.figures import losses
from loadtest.benchmarks.last_head import LastHeadOnly
from loadtest.benchmarks.measure import highest
from loadtest.benchmarks.page import HEADING, write_page
from serve.bundle.loader import Bundle
from serve.runtime.ort_session import plain_options
from tests.support.tiny import tiny_model

torch = pytest.importorskip("torch")

LABELS = {"same": 1.0, "accuracy": 0.9, "mean_layer": None, "start_s": 2.0}
LABELS |= {"statuses": {"cut off": 400, "wrong type": 422, "health": 200, "metrics": None}}
EIGHT = {"seconds": 8.0}
CLOSED = {"p50_ms": 5.0, "p99_ms": 9.0, "cpu_s_per_1000": 2.0, "memory_mb": 100.0}


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    """Return two rounds of a peer that is faster than this server."""
    found = Cells(tmp_path / "cells.jsonl", EIGHT)
    for name, speed in (("mosec", 500.0), ("Offramp, never", 400.0)):
        for round_ in range(2):
            found.add(Key("sst2", name, round_, "labels"), LABELS)
            figures = CLOSED | {"per_second": speed + 10 * round_}
            found.add(Key("sst2", name, round_, "closed 16 x 1"), figures)
    return found


def test_cells_are_read_again_but_not_a_line_that_was_cut_short(
    cells: Cells, tmp_path: Path
) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text(path.read_text() + '{"suite": "ss')
    again = Cells(path, EIGHT)
    assert again.by_key == cells.by_key
    again.add(Key("sst2", "BentoML", 0, "labels"), LABELS)
    assert len(Cells(path, EIGHT).by_key) == 9
    assert not Cells(path, {"seconds": 2.0}).by_key, "shorter loads are no figures of this run"


def test_figure_in_which_a_peer_is_ahead_is_named_and_no_other(cells: Cells) -> None:
    key = Key("sst2", "LitServe", 0, "closed 16 x 1")
    cells.add(key, CLOSED | {"per_second": 300.0, "memory_mb": 99.9})
    assert list(losses(cells)) == [
        "sst2, texts/s, 16 clients: never 405, mosec 505.",
        "sst2, MB: never 100, LitServe 99.9.",
    ]


def test_page_without_this_server_claims_no_victory(tmp_path: Path) -> None:
    alone = Cells(tmp_path / "cells.jsonl", EIGHT)
    alone.add(Key("sst2", "mosec", 0, "labels"), LABELS)
    write_page(tmp_path / "page.md", alone, {})
    assert "Offramp was not measured beside mosec." in (tmp_path / "page.md").read_text()


def test_page_shows_ranges_and_leaves_other_sections_alone(cells: Cells, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{HEADING}\n\nold\n\n## Next\n\nstays\n")
    write_page(page, cells, {})
    text = page.read_text()
    assert text.startswith("# Title\n")
    assert text.endswith("## Next\n\nstays\n")
    assert "old" not in text
    assert "| mosec | 100 | 90 | - | 505 (500 to 510) |" in text
    for picture in re.findall(r"\]\((\S+)\)", text):
        assert (tmp_path / picture).stat().st_size < 200_000


@pytest.mark.parametrize(("bound", "found"), [(0.0, 0.0), (0.5, 0.4), (2.0, 0.8)])
def test_highest_rate_that_holds_is_found(bound: float, found: float) -> None:
    assert highest((0.2, 0.4, 0.6, 0.8), lambda share: share < bound) == found


ROWS = [[2, 10, 11, 3], [2, 20, 21, 22, 23, 24, 3]]


def test_all_of_them_are_the_same_model(bundle: Bundle, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model = tiny_model()
    whole = OneGraph(write_one_graph(bundle, "fp32", tmp_path), plain_options(1))
    batched = whole.run(padded(ROWS, bundle.manifest.pad_id))
    for place, ids in enumerate(ROWS):
        inputs, mask = torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.long)
        with torch.inference_mode():
            expected = model(inputs, mask, torch.zeros_like(inputs))[-1].numpy()
            alone = LastHeadOnly(model).eval()(inputs, mask).logits.numpy()
        np.testing.assert_allclose(alone, expected, atol=1e-5)
        np.testing.assert_allclose(batched[place : place + 1], expected, atol=1e-4)


def test_peer_is_started_measured_stopped_and_not_measured_again(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundles, data = tmp_path / "bundles", tmp_path / "data" / "sst2"
    bundles.mkdir()
    (bundles / "sst2-minilm").symlink_to(bundle.folder)
    data.mkdir(parents=True)
    lines = "".join(f"{n % 3}\tw{n} w7 w{n + 1}\n" for n in range(8))
    (data / "dev.tsv").write_text(f"label\ttext\n{lines}")
    cores = os.sched_getaffinity(0)
    arguments = ["--bundles", str(bundles), "--data", str(tmp_path / "data"), "--rounds", "1"]
    arguments += ["--seconds", "0.2", "--only", "sst2-minilm/ONNX", "--out", str(tmp_path / "out")]
    assert command.main(arguments) == 0
    kept = (tmp_path / "out" / "cells.jsonl").read_text()
    found = [json.loads(line) for line in kept.splitlines()]
    assert len(found) == 7, capsys.readouterr().out
    assert found[0]["same"] == 1.0
    assert found[0]["statuses"]["cut off"] == 422
    assert found[1]["per_second"] > 0
    assert command.main(arguments) == 0
    assert (tmp_path / "out" / "cells.jsonl").read_text() == kept
    assert os.sched_getaffinity(0) == cores
