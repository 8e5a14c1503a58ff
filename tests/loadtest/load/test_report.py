import json
from pathlib import Path

from loadtest.load.figures import Figures, RampResult, RunCost
from loadtest.load.report import write_report
from loadtest.load.samples import Samples
from loadtest.load.saturation import Step
from tests.loadtest.load.test_samples import answered, failed

FACTS = {"date": "today", "command": "python -m loadtest.load"}
STEPS = (Step(1, None, 50.0, 5.0, 9.0, 0.0), Step(2, None, 90.0, 6.0, 20.0, 0.0))


def run(*, failing: bool = False, ramp: RampResult | None = None) -> Figures:
    samples = Samples(labels=("negative", "positive"))
    for number in range(200):
        samples.add("default policy", number / 50, 5.0 + number % 7, answered(1 + number % 6, "1"))
    if failing:
        samples.add("batch", 3.0, 1.0, failed())
    cost = RunCost(server_cpu_s=3.0, server_memory_mb=150.0, generator_cpu_s=0.5)
    return Figures(samples, 4.0, users=[(0.0, 4)], cost=cost, ramp=ramp)


def test_folder_has_words_and_numbers(tmp_path: Path) -> None:
    path, summary = write_report(run(), FACTS, tmp_path / "report")
    words = path.read_text()
    found = json.loads((path.parent / "report.json").read_text())
    assert found["total"]["requests"] == 200
    assert found["accuracy"] == 1.0
    assert found["cost"]["server_cpu_s_per_1000"] == 15.0
    assert found["exits"]["layers_saved"] == 1 - found["exits"]["mean_layer"] / 6
    assert summary in words


def test_failures_and_a_ramp_are_listed(tmp_path: Path) -> None:
    ramp = RampResult(STEPS, STEPS[1], "throughput no longer rises")
    _, summary = write_report(run(failing=True, ramp=ramp), FACTS, tmp_path)
    for line in ("| 1 | batch: 503 busy |", "| 2 | - | 90.0 | 6.00 | 20.0 | 0.0 % | knee |"):
        assert line in summary


def test_run_without_an_answer_has_a_report_too(tmp_path: Path) -> None:
    samples = Samples()
    samples.add("batch", 0.0, 1.0, failed())
    path, _ = write_report(Figures(samples, 1.0), FACTS, tmp_path)
    found = json.loads((path.parent / "report.json").read_text())
    assert found["exits"]["mean_layer"] is None
    assert found["client"]["due_to_answer"]["p99"] is None
