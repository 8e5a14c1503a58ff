"""The other servers, and the command that compares with them."""

import asyncio
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from loadtest.bench.inputs import padded
from loadtest.bench.one_graph import write_one_graph
from loadtest.bench.whole_model import OneGraph
from loadtest.compare import __main__ as command
from loadtest.compare.last_head import LastHeadOnly
from loadtest.compare.servers import LIMITS, Batcher
from serve.bundle.loader import Bundle
from serve.runtime.ort_session import plain_options
from tests.support.tiny import tiny_model


def test_every_text_gets_its_own_answer_from_few_batches() -> None:
    sizes = []

    def run(batch: list[list[int]]) -> NDArray[np.float32]:
        sizes.append(len(batch))
        return np.array([[ids[0], 0] for ids in batch], np.float32)

    async def ask() -> list[float]:
        batcher = Batcher(run)
        rows = await asyncio.gather(*(batcher.logits([number] * 5) for number in range(40)))
        return [float(row[0]) for row in rows]

    assert asyncio.run(ask()) == list(range(40))
    assert sizes == [LIMITS.max_rows, 8]


def test_failing_batch_fails_its_requests_and_no_others() -> None:
    def run(batch: list[list[int]]) -> NDArray[np.float32]:
        if batch[0][0] == 0:
            raise RuntimeError("out of memory")
        return np.ones((len(batch), 2), np.float32)

    async def ask() -> None:
        batcher = Batcher(run)
        with pytest.raises(RuntimeError, match="out of memory"):
            await batcher.logits([0])
        assert (await batcher.logits([1])).tolist() == [1, 1]

    asyncio.run(ask())


ROWS = [[2, 10, 11, 3], [2, 20, 21, 22, 23, 24, 3]]


def test_all_of_them_are_the_same_model(bundle: Bundle, tmp_path: Path) -> None:
    model = tiny_model()
    assert LastHeadOnly(model).encoder.config._attn_implementation == "sdpa"
    whole = OneGraph(write_one_graph(bundle, "fp32", tmp_path), plain_options(1))
    batched = whole.run(padded(ROWS, bundle.manifest.pad_id))
    for place, ids in enumerate(ROWS):
        inputs, mask = torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.long)
        with torch.inference_mode():
            expected = model(inputs, mask, torch.zeros_like(inputs))[-1].numpy()
            alone = LastHeadOnly(model).eval()(inputs, mask).logits.numpy()
        np.testing.assert_allclose(alone, expected, atol=1e-5)
        np.testing.assert_allclose(batched[place : place + 1], expected, atol=1e-4)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def arguments(bundle: Bundle, tmp_path: Path) -> list[str]:
    """Return a comparison of one contender on five texts."""
    data = tmp_path / "dev.tsv"
    data.write_text("label\ttext\n" + "".join(f"{n % 3}\tw{n} w7 w{n + 1}\n" for n in range(5)))
    return [
        *(str(bundle.folder), "--data", str(data), "--out", str(tmp_path / "out")),
        *("--only", "ONNX Runtime + FastAPI, fp32", "--seconds", "0.5", "--no-ray"),
        # So few requests that none is given up, though the machine stops for a second.
        *("--rate", "100"),
    ]


def test_contender_is_started_measured_and_stopped(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cores = os.sched_getaffinity(0)
    assert command.main(arguments) == 0, capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "compare.json").read_text())
    (line,) = found["lines"]
    assert line["agreement"] == 1.0
    assert line["accuracy"] in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    assert line["per_second"] > 0
    assert line["cpu_s_per_1000"] > 0
    assert line["memory_mb"] > 20
    assert line["failed"] == 0
    assert 0 < line["p50_ms"] <= line["p99_ms"]
    assert "| ONNX Runtime + FastAPI, fp32, dynamic batches |" in capsys.readouterr().out
    assert os.sched_getaffinity(0) == cores
