import json
from pathlib import Path

from loadtest.load.figures import Figures, Ramped, Spent, latencies
from loadtest.load.report import write_report
from loadtest.load.report.page import shown, table
from loadtest.load.samples import Samples
from loadtest.load.saturation import Step
from tests.loadtest.load.test_samples import asked, failed

PNG = b"\x89PNG"
FACTS = {"date": "today", "command": "python -m loadtest.load"}
STEPS = (Step(1, None, 50.0, 5.0, 9.0, 0.0), Step(2, None, 90.0, 6.0, 20.0, 0.0))


def run(*, failing: bool = False, ramped: Ramped | None = None) -> Figures:
    samples = Samples(labels=("negative", "positive"))
    for number in range(200):
        samples.add("default policy", number / 50, 5.0 + number % 7, asked(1 + number % 6, "1"))
    if failing:
        samples.add("batch", 3.0, 1.0, failed())
    kinds, total = latencies(samples, 4.0)
    return Figures(
        kinds,
        total,
        seconds=4.0,
        errors=dict(samples.errors),
        seen=samples.seen,
        counted=samples.seen,
        samples=samples,
        users=[(0.0, 4)],
        spent=Spent(server_cpu_s=3.0, server_memory_mb=150.0, generator_cpu_s=0.5),
        ramped=ramped,
    )


def test_folder_has_words_numbers_and_pictures(tmp_path: Path) -> None:
    path = write_report(run(), FACTS, tmp_path / "report")
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


def test_failures_are_listed_and_drawn(tmp_path: Path) -> None:
    path = write_report(run(failing=True), FACTS, tmp_path)
    assert "| 1 | batch: 503 busy |" in path.read_text()
    assert (tmp_path / "errors.png").read_bytes().startswith(PNG)


def test_ramp_has_its_steps_with_the_knee_marked(tmp_path: Path) -> None:
    ramped = Ramped(STEPS, STEPS[1], "throughput no longer rises")
    path = write_report(run(ramped=ramped), FACTS, tmp_path)
    assert "| 2 | - | 90.0 | 6 | 20 | 0.0% | knee |" in path.read_text()
    assert (tmp_path / "ramp.png").read_bytes().startswith(PNG)


def test_run_without_an_answer_has_a_report_too(tmp_path: Path) -> None:
    samples = Samples()
    samples.add("batch", 0.0, 1.0, failed())
    kinds, total = latencies(samples, 1.0)
    figures = Figures(kinds, total, seconds=1.0, samples=samples)
    path = write_report(figures, FACTS, tmp_path)
    found = json.loads((path.parent / "report.json").read_text())
    assert found["exits"]["mean_layer"] is None
    assert found["client"]["due_to_answer"]["p99"] is None


def test_bars_in_words_do_not_break_a_table() -> None:
    assert table(("what", "times"), [["a|b\nc", 3]]) == (
        "| what | times |\n| --- | ---: |\n| a\\|b c | 3 |"
    )


def test_numbers_are_short() -> None:
    assert [shown(x) for x in (None, 0.1234, 12.34, 1234.5, 7)] == [
        "-",
        "0.12",
        "12.3",
        "1234",
        "7",
    ]
