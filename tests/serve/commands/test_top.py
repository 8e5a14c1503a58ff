"""`offramp top`: its figures, and its screen."""

import io
import itertools
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from serve.cli import main
from serve.commands import top as top_module
from serve.commands.figures import Growth, between
from tests.serve.support.http_answers import answering, sending
from tests.serve.support.live_server import serving_bundles
from tests.support.tiny import WORDS

Top = Callable[..., int]


@pytest.fixture
def top(monkeypatch: pytest.MonkeyPatch) -> Top:
    """Run `offramp top` in this process; `between_looks` is called in the place of waiting."""

    def run(url: object, *words: str, between_looks: Callable[[float], object]) -> int:
        monkeypatch.setattr(sys, "argv", ["offramp", "top", "--url", str(url), *words])
        clock = itertools.count(0, 20)
        fake = SimpleNamespace(sleep=between_looks, monotonic=lambda: next(clock))
        monkeypatch.setattr(top_module, "time", fake)
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code

    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("OFFRAMP_KEY", raising=False)
    monkeypatch.setattr("serve.cli.entry_points", lambda group: ())
    return run


def test_figures_are_those_of_the_requests_between_two_looks(bundle_folder: Path) -> None:
    with serving_bundles(bundle_folder) as server:
        server.answer(list(WORDS[:3]), exit={"rule": "layer", "layer": 3})
        growth = Growth()
        older = growth.read(server.http.get("/metrics").text, 0)
        server.answer(list(WORDS[:6]), exit={"rule": "layer", "layer": 1})
        server.answer(list(WORDS[:2]), exit={"rule": "never"})
        server.refusal("w1", exit="nothing")
        server.http.get("/v1/models/tiny/policy")
        newer = growth.read(server.http.get("/metrics").text, 10)
    figures = between(older, newer, "tiny")
    assert figures is not None
    assert (figures.requests_s, figures.texts_s) == (0.3, 0.8)
    assert (figures.refused_s, figures.failed_s) == (0.1, 0)
    assert figures.exits == {1: 0.75, 2: 0, 3: 0, 4: 0.25}
    assert (figures.layers, figures.saved) == (14 / 8, 18 / 32)
    assert 0 < figures.quantiles_ms[0] <= figures.quantiles_ms[2]
    still = between(newer, growth.read("", 20), "tiny"), between(newer, newer, "tiny")
    assert still == (None, None)


# What replicas count on pages that are read one after the other, and the texts between two pages.
PAGES = (
    {"a": 100, "b": 1000},
    {"a": 110, "b": 1010},
    {"a": 115},  # b is killed
    {"a": 120, "c": 5000},  # c is met for the first time, and may be old
    {"a": 4, "c": 5007},  # a has begun anew
    {"c": 5008},
    {"a": 6, "c": 5008},  # a gave no page once
)
TEXTS_OF_PAGES = [20, 5, 5, 11, 1, 2]


def page_of(counts: dict[str, int]) -> str:
    line = 'offramp_exits_total{{model="m",replica="{}",layer="1",reason="final"}} {}\n'
    return "".join(line.format(*each) for each in counts.items())


def test_counts_grow_by_what_each_replica_counts() -> None:
    growth = Growth()
    samples = [growth.read(page_of(page), 10 * i) for i, page in enumerate(PAGES)]
    steps = (between(*pair, "m") for pair in itertools.pairwise(samples))
    assert [round(10 * step.texts_s) for step in steps if step] == TEXTS_OF_PAGES
    whole = between(samples[0], samples[-1], "m")
    assert whole is not None
    assert round(60 * whole.texts_s) == sum(TEXTS_OF_PAGES)


def test_after_the_guardrail_has_acted_the_screen_says_so() -> None:
    page = 'offramp_model_info{model="m"} 1\nofframp_policy_by_guardrail{model="m"} 1\n'
    growth = Growth()
    older, newer = (growth.read(page, at_s) for at_s in (0, 1))
    console = Console(file=io.StringIO(), width=120)
    console.print(top_module.screen(newer, older, older))
    assert "offramp policy rollback VERSION" in console.file.getvalue()  # type: ignore[attr-defined]


HOSTILE = """offramp_replicas_running NaN
offramp_replicas_wanted +Inf
offramp_model_info{model="m\x1b]0;owned\x07"} 1
offramp_queue_seconds{model="m\x1b]0;owned\x07"} NaN
offramp_exits_total{model="m\x1b]0;owned\x07",layer="first",reason="\x1b[2J"} 3
offramp_exits_total{model="m\x1b]0;owned\x07"} +Inf
offramp_requests_total{model="m\x1b]0;owned\x07",code=""} 1e308
offramp_request_duration_seconds_bucket{model="m\x1b]0;owned\x07",le="nan"} 4
"""


@pytest.mark.parametrize("page", [HOSTILE, HOSTILE + "offramp_exits_total{ 1 \x1b[2J\n"])
def test_a_hostile_page_of_metrics_reaches_no_terminal(
    top: Top, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(sending(page, "text/plain")) as url:
        status = top(url, "--once", between_looks=lambda _: None)
    said = "".join(capsys.readouterr())
    assert "\x1b" not in said
    assert "\x07" not in said
    assert (status, "owned" in said) == ((0, True) if page == HOSTILE else (4, False))


def test_once_prints_the_figures_of_one_interval_and_cuts_none_in_a_narrow_terminal(
    bundle_folder: Path,
    top: Top,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving_bundles(bundle_folder) as server:

        def work(seconds: float) -> None:
            assert seconds == 0.5
            server.answer(list(WORDS[:4]), exit={"rule": "layer", "layer": 2})

        for columns in ("100", "60", "24"):
            monkeypatch.setenv("COLUMNS", columns)
            words = ("--once", "--interval", "0.5")
            assert top(server.http.base_url, *words, between_looks=work) == 0
            said = capsys.readouterr().out
            assert "…" not in said
            assert all(name in said for name in ("req/s", "p99 ms", "errors/s", "queue ms"))
            lines = said.splitlines()
            assert lines[0] == "replicas 1 of 1"
            assert any(line.startswith("tiny  policy 1") for line in lines)
            if columns == "100":
                shares = [line.split()[-2:] for line in lines if line[:2] in ("1 ", "2 ")]
                assert shares == [["0", "%"], ["100", "%"]]


def test_screen_follows_models_that_come_and_go(
    bundle_folder: Path, top: Top, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(bundle_folder, tmp_path / "other")
    with serving_bundles(bundle_folder, model_repository=tmp_path) as server:

        def load() -> None:
            server.http.post("/v1/models/other/load").raise_for_status()
            server.http.put("/v1/aliases/mood", json={"model": "other"}).raise_for_status()

        def unload() -> None:
            server.http.put("/v1/aliases/mood", json={"model": "tiny"}).raise_for_status()
            server.http.post("/v1/models/other/unload").raise_for_status()

        def last_screen(*steps: Callable[[], object]) -> str:
            left = iter([*steps, stop])
            assert top(server.http.base_url, between_looks=lambda _: next(left)()) == 130
            return capsys.readouterr().out

        assert "other  policy 1" in last_screen(load, wait, wait)
        once = ("--once", "--model", "mood")
        assert top(server.http.base_url, *once, between_looks=lambda _: None) == 0
        assert "other  policy 1" in capsys.readouterr().out
        said = last_screen(unload)
        assert "tiny  policy 1" in said
        assert "other" not in said


def test_last_figures_stay_while_the_server_is_away(
    bundle_folder: Path, top: Top, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as running:
        url = running.enter_context(serving_bundles(bundle_folder)).http.base_url
        steps = iter([wait, running.close, wait, stop])
        assert top(url, between_looks=lambda _: next(steps)()) == 130
    said = capsys.readouterr().out
    assert "tiny  policy 1" in said
    assert "Connection refused" in said


def wait() -> None:
    """Look again."""


def stop() -> None:
    """Press Ctrl-C."""
    raise KeyboardInterrupt
