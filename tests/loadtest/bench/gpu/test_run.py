"""The whole check for GPU hosts, run on the CPU."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loadtest.bench import one_graph
from loadtest.bench.errors import BenchFailed
from loadtest.bench.gpu import __main__ as command
from loadtest.bench.gpu import child
from loadtest.bench.gpu.__main__ import PLAN, main
from loadtest.bench.gpu.random_bundle import SETTINGS, random_bundle
from loadtest.simulator.presets import read_device
from serve.bundle.loader import Bundle
from serve.runtime import cuda_provider as cuda

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


def on_cpu(bundle: Bundle, report: Path, *more: str) -> list[str]:
    return [str(bundle.folder), "--device", "cpu", "--seconds", "1", "--json", str(report), *more]


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Any:
    def hidden(*packages: str) -> None:
        find = child.find_spec
        monkeypatch.setattr(
            child, "find_spec", lambda name: None if name in packages else find(name)
        )

    return hidden


def test_a_bare_host_runs_every_step(
    half_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["one_graph", str(half_bundle.folder), "--out", str(tmp_path)])
    one_graph.main()
    report = tmp_path / "report.json"
    arguments = on_cpu(half_bundle, report, "--one-graph", str(tmp_path))
    script = _WITHOUT.format(absent=ABSENT, arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(report.read_text())
    assert not document["problems"]
    assert list(document["steps"]) == [name for name, _, _ in PLAN]
    *_, sentence, last = done.stdout.splitlines()
    assert sentence == document["verdict"]["sentence"]
    assert sentence.startswith("on the CPU provider leaving ")
    assert last == "gpu: fp16 passed on cpu"
    steps = document["steps"]
    assert sum(steps["facts"]["operators"]["CPUExecutionProvider"].values()) > 20
    assert {line["contender"] for line in steps["baselines"]["ms"]} == {"one_graph"}
    assert steps["baselines"]["skipped"] == {
        "cuda_graph": "needs CUDA",
        "torch, torch_compiled": "not installed: torch, transformers",
    }
    assert [line["active"] for line in steps["subsets"]["ms"]][:4] == [
        [4],
        [2, 4],
        [1, 3, 4],
        [1, 2, 3, 4],
    ]
    assert len(steps["throughput"]["rows_per_s"]) == 4 * 3
    device = read_device(f"measured:{report}", 4)
    assert device.whole_s(1, 8) > 0


def test_torch_is_used_where_it_is(half_bundle: Bundle, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = on_cpu(half_bundle, report, "--steps", "baselines")
    assert main(arguments) == 0
    steps = json.loads(report.read_text())["steps"]
    contenders = {line["contender"] for line in steps["baselines"]["ms"]}
    assert contenders == {"one_graph", "torch", "torch_compiled"}


def test_without_onnx_and_without_a_graph_all_else_is_measured(
    half_bundle: Bundle, tmp_path: Path, hide: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    hide("onnx", "torch")
    report = tmp_path / "report.json"
    steps = ("shapes", "baselines", "subsets", "throughput")
    assert main(on_cpu(half_bundle, report, "--steps", *steps)) == 0
    document = json.loads(report.read_text())
    found = document["steps"]
    assert "--one-graph" in found["baselines"]["skipped"]["one_graph"]
    assert all(line["whole_ms"] is None for line in found["shapes"]["times"])
    assert all(line["segment_ms"] > 0 for line in found["shapes"]["times"])
    assert all(line["every_exit"] > 0 for line in found["throughput"]["rows_per_s"])
    assert "device_times" not in document, "the simulator needs the whole model's times"
    assert "too little was measured to say" in capsys.readouterr().out


def test_a_report_that_cannot_be_written_is_said_before_anything_runs(
    half_bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(on_cpu(half_bundle, tmp_path / "file" / "report.json")) == 1
    assert "==" not in (said := capsys.readouterr().out)
    assert said.startswith("gpu: FAILED: ")
    assert str(tmp_path / "file") in said


@pytest.mark.skipif(cuda.fault() is None, reason="there is a GPU")
def test_without_a_gpu_it_fails_and_says_why(
    half_bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(half_bundle.folder)]) == 1
    assert capsys.readouterr().out.startswith("gpu: FAILED: CUDA cannot be used here: ")


def test_a_bundle_without_fp16_is_refused(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(on_cpu(bundle, tmp_path / "report.json")) == 1
    assert "--precision fp16" in capsys.readouterr().out


def test_where_no_bundle_is_named_one_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = replace(SETTINGS, layers=2, width=32, heads=2, vocabulary=50, max_tokens=64)
    monkeypatch.setattr(command, "_BUILT", tmp_path / "built")
    monkeypatch.setattr(command, "random_bundle", partial(random_bundle, settings=small))
    report = tmp_path / "report.json"
    arguments = ["--device", "cpu", "--json", str(report), "--seconds", "1", "--steps", "facts"]
    assert main(arguments) == 0
    assert json.loads(report.read_text())["layers"] == 2
    assert "building" in capsys.readouterr().out
    assert main([*arguments, "correctness"]) == 0
    assert "building" not in capsys.readouterr().out, "it is built once"


def test_the_page_has_the_plan_with_its_seconds() -> None:
    page = Path(__file__).parents[4] / "docs" / "gpu.md"
    listed = re.findall(r"^\| `(\w+)` \| (\d+) \|", page.read_text("utf-8"), re.M)
    assert [(name, int(seconds)) for name, seconds in listed] == [step[:2] for step in PLAN]


def test_without_the_exporter_a_bundle_must_be_brought(tmp_path: Path, hide: Any) -> None:
    hide("onnxscript", "onnx_ir")
    with pytest.raises(BenchFailed, match="built here without onnx_ir, onnxscript"):
        random_bundle(tmp_path / "built")
