"""The check for GPU hosts, run on the CPU."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.bench import one_graph
from loadtest.bench.gpu.__main__ import main
from loadtest.bench.gpu.checks import check_invariance, check_parity
from loadtest.bench.gpu.device_variant import DeviceVariant, Place, load, reference
from serve.bundle.loader import Bundle
from serve.engine.runner import StepOutput
from serve.runtime import cuda_provider as cuda
from serve.runtime.cuda_runner import CudaRunner

# What a bare GPU host need not have.
ABSENT = ("fastapi", "onnx", "onnx_ir", "onnxscript", "prometheus_client", "ray", "rich")
ABSENT += ("safetensors", "starlette", "torch", "transformers", "typer", "uvicorn")

_WITHOUT = """
import runpy, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = ["gpu", *{arguments!r}]
runpy.run_module("loadtest.bench.gpu", run_name="__main__")
"""


@pytest.fixture(scope="module")
def half(half_bundle: Bundle) -> DeviceVariant:
    return load(half_bundle, "fp16", Place("cpu"))


def test_a_bare_host_checks_and_measures_everything(
    half_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["one_graph", str(half_bundle.folder), "--out", str(tmp_path)])
    one_graph.main()
    report = tmp_path / "report.json"
    arguments = [str(half_bundle.folder), "--device", "cpu", "--json", str(report), "--rows", "60"]
    arguments += ["--seconds", "0.001", "--one-graph", str(tmp_path)]
    script = _WITHOUT.format(absent=ABSENT, arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("gpu: fp16 passed on cpu\n")
    document = json.loads(report.read_text())
    assert list(document["variants"]) == ["fp16"]
    for variant in document["variants"].values():
        assert len(variant["findings"]) == 2
        assert all(time["one_graph_ms"] > 0 for time in variant["times"])
        assert [size["rows"] for size in variant["batch_sizes"]][-1] == 256
        assert len(variant["throughput"]) == 3


def test_what_was_found_is_kept_when_a_variant_fails(
    half_bundle: Bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing(chain: CudaRunner, *arguments: Any) -> StepOutput:
        raise RuntimeError("A cuDNN handle is required\nand more")

    monkeypatch.setattr(CudaRunner, "start", failing)
    report = tmp_path / "report.json"
    arguments = [str(half_bundle.folder), "--device", "cpu", "--seconds", "0", "--rows", "8"]
    assert main([*arguments, "--json", str(report)]) == 1
    said = "fp16: RuntimeError: A cuDNN handle is required"
    assert capsys.readouterr().out.endswith(f"gpu: FAILED: {said}\n")
    document = json.loads(report.read_text())
    assert document["problems"] == [said]
    failed = document["variants"]["fp16"]
    assert list(failed) == ["operators", "findings"], "no seconds, no times"
    assert not failed["findings"]


def test_what_was_measured_is_kept_when_the_next_measurement_fails(
    half_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: object) -> None:
        raise TimeoutError("rows were not answered")

    monkeypatch.setattr("loadtest.bench.gpu.__main__.measure_throughput", failing)
    report = tmp_path / "new folder" / "report.json"
    arguments = [str(half_bundle.folder), "--device", "cpu", "--seconds", "0.001", "--rows", "8"]
    assert main([*arguments, "--json", str(report)]) == 1
    for variant in json.loads(report.read_text())["variants"].values():
        assert list(variant) == ["operators", "findings", "times", "batch_sizes"]


def test_a_report_that_cannot_be_written_is_said_before_anything_runs(
    half_bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    report = str(tmp_path / "file" / "report.json")
    assert main([str(half_bundle.folder), "--device", "cpu", "--json", report]) == 1
    assert "==" not in (said := capsys.readouterr().out)
    assert said.startswith("gpu: FAILED: ")
    assert report in said or str(tmp_path / "file") in said


@pytest.mark.skipif(cuda.fault() is None, reason="there is a GPU")
def test_without_a_gpu_it_fails_and_says_why(
    half_bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(half_bundle.folder)]) == 1
    assert capsys.readouterr().out.startswith("gpu: FAILED: CUDA cannot be used here: ")


def test_answers_that_depend_on_the_batch_are_found(
    half: DeviceVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = type(half.chain).start

    def leaky(*arguments: object) -> StepOutput:
        step = start(*arguments)  # type: ignore[arg-type]
        return step._replace(logits=step.logits + len(step.logits) - 1)

    assert check_invariance(half, 40).passed
    monkeypatch.setattr(type(half.chain), "start", leaky)
    finding = check_invariance(half, 40)
    assert finding.max_error > 0.5
    assert not finding.passed


@pytest.mark.parametrize("wrong", [np.nan, 0.2])
def test_other_logits_are_no_parity(
    half: DeviceVariant, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    start = type(half.chain).start

    def broken(*arguments: object) -> StepOutput:
        step = start(*arguments)  # type: ignore[arg-type]
        return step._replace(logits=step.logits + np.float32(wrong))

    assert check_parity(half, reference(half.bundle)).passed
    monkeypatch.setattr(type(half.chain), "start", broken)
    assert not check_parity(half, reference(half.bundle)).passed
