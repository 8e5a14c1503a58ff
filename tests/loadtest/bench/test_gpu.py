"""The check for GPU hosts, run on the CPU."""

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from loadtest.bench.engine_driver import BenchFailed
from loadtest.bench.gpu import __main__ as command
from loadtest.bench.gpu.__main__ import main
from loadtest.bench.gpu.variant import (
    TOLERANCE,
    DeviceVariant,
    error_against_cpu,
    error_in_batches,
    load,
    reference,
)
from loadtest.bench.gpu.whole_model import whole_model
from loadtest.bench.inputs import padded, random_texts
from loadtest.bench.one_graph import write_one_graph
from loadtest.bench.random_model import BERT_BASE
from loadtest.simulator.devices import read_device
from serve.bundle.loader import Bundle
from serve.engine.runner import StepOutput
from serve.runtime import cuda_provider as cuda

# What a bare GPU host need not have.
ABSENT = ("fastapi", "onnx", "onnx_ir", "onnxscript", "prometheus_client", "ray", "rich")
ABSENT += ("safetensors", "starlette", "torch", "transformers", "typer", "uvicorn")
WITHOUT = """
import runpy, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = ["gpu", *{arguments!r}]
runpy.run_module("loadtest.bench.gpu", run_name="__main__")
"""


@pytest.fixture
def half(half_bundle: Bundle) -> DeviceVariant:
    return load(half_bundle, "fp16", "cpu")


def on_cpu(bundle: Bundle, report: Path) -> list[str]:
    return [str(bundle.folder), "--device", "cpu", "--seconds", "0", "--json", str(report)]


def test_all_is_measured_and_the_simulator_reads_it(half_bundle: Bundle, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert main(on_cpu(half_bundle, report)) == 0
    document = json.loads(report.read_text())
    assert [len(line["until_ms"]) for line in document["times"]] == [4, 4, 4]
    assert all(line["whole"] > 0 for line in document["rows per second"])
    assert read_device(f"measured:{report}", 4).whole_s(1, 8) > 0


def test_a_bare_host_measures_all_but_the_whole_model(half_bundle: Bundle, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    script = WITHOUT.format(absent=ABSENT, arguments=on_cpu(half_bundle, report))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    times = json.loads(report.read_text())["times"]
    assert {line["whole_ms"] for line in times} == {None}


@pytest.mark.skipif(cuda.fault() is None, reason="there is a GPU")
def test_without_a_gpu_it_fails(half_bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(half_bundle.folder)]) == 1
    assert capsys.readouterr().out.startswith("gpu: FAILED: ")


def test_a_bundle_without_fp16_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    assert main(on_cpu(bundle, tmp_path / "report.json")) == 1


@pytest.mark.nightly
def test_where_no_bundle_is_named_one_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(BERT_BASE, layers=6, width=32, heads=2, vocabulary=50, max_tokens=64)
    monkeypatch.setattr(command, "BUILT", tmp_path / "built")
    monkeypatch.setattr(command, "BERT_BASE", small)
    assert main(["--device", "cpu", "--seconds", "0"]) == 0
    assert (tmp_path / "built" / "manifest.json").exists()


@pytest.mark.parametrize("wrong", [np.nan, 0.2])
def test_wrong_logits_fail(
    half: DeviceVariant, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    start = type(half.chain).start

    def broken(*arguments: object) -> StepOutput:
        step = start(*arguments)  # type: ignore[arg-type]
        return StepOutput(step.hidden, step.logits + np.float32(wrong) * len(step.logits))

    expected = reference(half.bundle)
    assert max(error_against_cpu(half, expected), error_in_batches(half, 40)) <= TOLERANCE
    monkeypatch.setattr(type(half.chain), "start", broken)
    assert not error_against_cpu(half, expected) <= TOLERANCE
    with suppress(BenchFailed):  # the engine itself refuses what is no number
        assert not error_in_batches(half, 40) <= TOLERANCE


def test_the_whole_model_as_one_graph_answers_as_its_segments(
    half: DeviceVariant, tmp_path: Path
) -> None:
    run = whole_model(write_one_graph(half.bundle, "fp16", tmp_path), "cpu")
    last = half.chain.presenting((len(half.chain) - 1,))
    for lengths in ([9, 4, 17], [3]):
        inputs = padded(random_texts(lengths, half.vocabulary), 0)
        np.testing.assert_allclose(run(inputs), last.start(*inputs).logits, atol=1e-4)
