import json
from pathlib import Path

from loadtest.load.figures import Figures, RampResult, RunCost
from loadtest.load.report import write_report
from loadtest.load.samples import Samples
from loadtest.load.saturation import Step
from models.report.markdown import table
from tests.loadtest.load.test_samples import answered, failed

PNG = b"\x89PNG"
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


def test_folder_has_words_numbers_and_pictures(tmp_path: Path) -> None:
    path, summary = write_report(run(), FACTS, tmp_path / "report")
    words = path.read_text()
    found = json.loads((path.parent / "report.json").read_text())
    assert found["total"]["requests"] == 200
    assert found["accuracy"] == 1.0
    assert found["cost"]["server_cpu_s_per_1000"] == 15.0
    assert found["exits"]["layers_saved"] == 1 - found["exits"]["mean_layer"] / 6
    for name in ("throughput.png", "latency.png", "exits.png"):
        assert f"({name})" in words
        assert (path.parent / name).read_bytes().startswith(PNG)
    assert "errors.png" not in words
    assert summary in words


def test_failures_and_a_ramp_are_listed_and_drawn(tmp_path: Path) -> None:
    ramp = RampResult(STEPS, STEPS[1], "throughput no longer rises")
    path, summary = write_report(run(failing=True, ramp=ramp), FACTS, tmp_path)
    for line in ("| 1 | batch: 503 busy |", "| 2 | - | 90.0 | 6.00 | 20.0 | 0.0 % | knee |"):
        assert line in summary
    for name in ("errors.png", "ramp.png"):
        assert f"({name})" in path.read_text()
        assert (tmp_path / name).read_bytes().startswith(PNG)


def test_run_without_an_answer_has_a_report_too(tmp_path: Path) -> None:
    samples = Samples()
    samples.add("batch", 0.0, 1.0, failed())
    path, _ = write_report(Figures(samples, 1.0), FACTS, tmp_path)
    found = json.loads((path.parent / "report.json").read_text())
    assert found["exits"]["mean_layer"] is None
    assert found["client"]["due_to_answer"]["p99"] is None


def test_table_has_short_numbers_and_no_bars_in_words() -> None:
    rows = [["a|b\nc", number] for number in (None, 0.1234, 12.34, 1234.5, 7)]
    head, marks, *lines = table(("what", "times"), rows).split("\n")
    assert (head, marks) == ("| what | times |", "| --- | ---: |")
    assert lines == [f"| a\\|b c | {number} |" for number in ("-", "0.12", "12.3", "1234", "7")]
