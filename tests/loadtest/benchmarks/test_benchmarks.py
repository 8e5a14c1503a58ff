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
from loadtest.benchmarks.contenders import offramp, peers
from loadtest.benchmarks.figures import BALANCED, NEVER, bars, losses
from loadtest.benchmarks.last_head import LastHeadOnly
from loadtest.benchmarks.measure import CHECK, LEFT_OUT, highest
from loadtest.benchmarks.page import (
    BEGIN,
    END,
    readme_table,
    whole_page,
    write_page,
    write_readme,
)
from serve.bundle.loader import Bundle
from serve.runtime.ort_session import plain_options
from tests.support.tiny import tiny_model

torch = pytest.importorskip("torch")

LABELS = {"same": 1.0, "accuracy": 0.9, "mean_layer": None, "start_s": 2.0, "cpu": "Zen 4"}
LABELS |= {"statuses": {"cut off": 400, "wrong type": 422, "health": 200, "metrics": None}}
LABELS |= {"date": "2026-11-28"}
EIGHT = {"seconds": 8.0}
CLOSED = {"p50_ms": 5.0, "p99_ms": 9.0, "cpu_s_per_1000": 2.0, "memory_mb": 100.0}
MAIN = "sst2-minilm"


def add(cells: Cells, name: str, speed: float, same: float = 1.0, **figures: float) -> None:
    """Add two rounds of a contender."""
    for round_ in range(2):
        cells.add(Key(MAIN, name, round_, CHECK), LABELS | {"same": same})
        found = CLOSED | {"per_second": speed + 10 * round_} | figures
        for clients in (16, 64):
            cells.add(Key(MAIN, name, round_, f"closed {clients} x 1"), found)


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    """Return a peer that is faster than this server at full depth."""
    found = Cells(tmp_path / "cells.jsonl", EIGHT)
    add(found, "mosec", 500.0)
    add(found, NEVER, 400.0)
    return found


def test_cells_are_read_again_but_not_a_line_that_was_cut_short(
    cells: Cells, tmp_path: Path
) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text(path.read_text() + '{"suite": "ss')
    again = Cells(path, EIGHT)
    assert again.by_key == cells.by_key
    again.add(Key(MAIN, "BentoML", 0, CHECK), LABELS)
    assert len(Cells(path, EIGHT).by_key) == 13
    assert not Cells(path, {"seconds": 2.0}).by_key, "shorter loads are no figures of this run"


def test_only_figures_outside_both_ranges_and_of_peers_with_the_same_labels_are_losses(
    cells: Cells,
) -> None:
    add(cells, "LitServe", 405.0, memory_mb=99.9)
    add(cells, "Model2Vec", 2000.0, same=0.8, memory_mb=10.0)
    assert [(column.title, found.peer) for _, _, column, found in losses(cells)] == [
        ("texts/s, 16 clients", "mosec"),
        ("texts/s, 64 clients", "mosec"),
        ("MB", "LitServe"),
    ]


def test_bars_are_held_against_the_best_peer_and_missed_ones_stand_out(cells: Cells) -> None:
    add(cells, BALANCED, 800.0, same=0.99, p99_ms=9.5)
    held = {(bar.own, bar.column.title): holds for bar, _, holds in bars(cells)}
    assert held == {
        (NEVER, "texts/s, 64 clients"): False,
        (BALANCED, "texts/s, 16 clients"): True,
        (BALANCED, "texts/s, 64 clients"): True,
        (BALANCED, "p99 ms, 16 clients"): False,
        (BALANCED, "p99 ms, 64 clients"): False,
    }
    assert "at least 0.97 | **0.80** |" in whole_page(cells, {})


def test_page_without_this_server_claims_no_victory(tmp_path: Path) -> None:
    alone = Cells(tmp_path / "cells.jsonl", EIGHT)
    add(alone, "mosec", 500.0)
    assert "Not measured." in whole_page(alone, {})
    assert not readme_table(alone)


def test_page_says_how_far_a_second_run_is_from_the_first(cells: Cells) -> None:
    cells.add(Key("sst2-mpnet", "mosec", 0, CHECK), LABELS)
    assert "a second run" not in whole_page(cells, {})
    for round_, speed in ((2, 545.0), (3, 565.0)):  # 510 and 500 in the first two
        cells.add(Key(MAIN, "mosec", round_, "closed 16 x 1"), CLOSED | {"per_second": speed})
    text = whole_page(cells, {})
    assert f"({MAIN} 4, sst2-mpnet 1)" in text
    assert "by 10 % in the median, by 10 % at most" in text


def test_page_of_all_contenders_is_whole_and_short(cells: Cells, tmp_path: Path) -> None:
    described = {each.name: each for each in peers(tmp_path, {})}
    described |= {each.name: each for each in offramp(tmp_path, ("balanced", "fast"))}
    for name in described:
        add(cells, name, 300.0)
    for other in ("sst2-mpnet", "agnews-minilm", "long texts"):
        for name in ("mosec", NEVER, BALANCED):
            cells.add(Key(other, name, 0, CHECK), LABELS)
    for bound in (50, 100):
        cells.add(Key(MAIN, "mosec", 0, f"open {bound} ms"), {"per_second": 90.0})
    cells.add(Key(MAIN, "Caffe", 0, LEFT_OUT), {"why": "cannot be installed"})
    page = tmp_path / "docs" / "page.md"
    write_page(page, cells, described)
    text = page.read_text()
    assert "* Caffe (sst2-minilm): cannot be installed" in text
    assert "| mosec | 100 | 90 | - | 305±5 |" in text
    assert len(re.findall(r"\S*\w\S*", text)) <= 1500
    pictures = re.findall(r"!\[.*\]\((\S+)\)", text)
    assert len(pictures) == 2
    for picture in pictures:
        assert (page.parent / picture).stat().st_size < 200_000


def test_readme_gets_the_fastest_peer_and_keeps_what_surrounds_its_marks(
    cells: Cells, tmp_path: Path
) -> None:
    add(cells, BALANCED, 757.5, same=0.99)
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_readme(readme, cells)
    text = readme.read_text()
    assert text.startswith(f"before\n{BEGIN}\n|")
    assert text.endswith(f"{END}\nafter\n")
    assert "| mosec, the fastest other server | 6 | 505 | 505 | none |" in text
    assert "gives 1.51 and 1.51 times" in text


def test_readme_of_this_project_has_the_marks() -> None:
    text = (Path(__file__).parents[3] / "README.md").read_text("utf-8")
    assert text.index(BEGIN) < text.index(END)


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
