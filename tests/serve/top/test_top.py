import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from serve.cli import main
from serve.policy_cli.server import Server, read_tls
from serve.top import cli
from serve.top.cli import Watch
from serve.top.figures import between, read_sample
from serve.top.shown import screen
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.openapi_fuzz import make_key
from tests.support.tiny import WORDS

Top = Callable[..., None]


@pytest.fixture
def top(monkeypatch: pytest.MonkeyPatch) -> Top:
    """Run `offramp top` in this process; `between_looks` is called in the place of waiting."""

    def run(url: object, *words: str, between_looks: Callable[[float], None]) -> None:
        monkeypatch.setattr(sys, "argv", ["offramp", "top", "--url", str(url), *words])
        monkeypatch.setattr(cli.time, "sleep", between_looks)
        main()

    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("OFFRAMP_KEY", raising=False)
    return run


def test_figures_are_those_of_the_requests_between_two_looks(bundle_folder: Path) -> None:
    with serving_bundles(bundle_folder) as server:
        server.answer(list(WORDS[:3]), exit={"rule": "layer", "layer": 3})
        older = read_sample(server.http.get("/metrics").text, 0)
        server.answer(list(WORDS[:6]), exit={"rule": "layer", "layer": 1})
        server.answer(list(WORDS[:2]), exit={"rule": "never"})
        server.refusal("w1", exit="nothing")
        server.http.get("/v1/models/tiny/policy")
        newer = read_sample(server.http.get("/metrics").text, 10)
    figures = between(older, newer, "tiny")
    assert figures is not None
    assert (figures.requests_s, figures.texts_s) == (0.3, 0.8)
    assert (figures.refused_s, figures.failed_s) == (0.1, 0)
    assert figures.exits == {1: 0.75, 2: 0, 3: 0, 4: 0.25}
    assert (figures.layers, figures.saved) == (14 / 8, 18 / 32)
    assert 0 < figures.quantiles_ms[0] <= figures.quantiles_ms[2]
    still = between(newer, read_sample("", 20), "tiny"), between(newer, newer, "tiny")
    assert still == (None, None)


def test_replica_that_has_ended_makes_no_negative_figures() -> None:
    page = 'offramp_exits_total{{model="m",layer="1"}} {}\n'
    older, newer = (read_sample(page.format(n), n) for n in (10, 20))
    fallen = between(newer, read_sample(page.format(4), 30), "m")
    assert (between(older, newer, "m") or fallen).texts_s == 1  # type: ignore[union-attr]
    assert fallen is not None
    assert fallen.texts_s == 0
    assert math.isnan(fallen.layers)


def test_once_prints_the_figures_of_one_interval(
    bundle_folder: Path, top: Top, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving_bundles(bundle_folder) as server:

        def work(seconds: float) -> None:
            assert seconds == 0.5
            server.answer(list(WORDS[:4]), exit={"rule": "layer", "layer": 2})

        with pytest.raises(SystemExit) as ended:
            top(server.http.base_url, "--once", "--interval", "0.5", between_looks=work)
    assert ended.value.code == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "replicas 1 of 1"
    assert any(line.startswith("tiny  policy 1") for line in said)
    assert [line.split()[-2:] for line in said if line[:2] in ("1 ", "2 ")] == [
        ["0", "%"],
        ["100", "%"],
    ]


@pytest.mark.parametrize("columns", ["24", "60"])
def test_no_figure_is_cut_in_a_narrow_terminal(
    bundle_folder: Path,
    top: Top,
    columns: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with serving_bundles(bundle_folder) as server, pytest.raises(SystemExit):
        top(server.http.base_url, "--once", between_looks=lambda _: server.answer(list(WORDS[:4])))
    said = capsys.readouterr().out
    assert "…" not in said
    assert all(name in said for name in ("req/s", "p99 ms", "errors/s", "queue ms"))


def test_screen_goes_on_while_the_server_is_away(
    bundle_folder: Path, top: Top, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter([None, None])

    def wait(_: float) -> None:
        if next(looks, "ended") == "ended":
            raise KeyboardInterrupt

    with serving_bundles(bundle_folder) as server, pytest.raises(SystemExit) as ended:
        top(server.http.base_url, between_looks=wait)
    assert ended.value.code == 130
    assert "tiny" in capsys.readouterr().out


def test_server_that_has_gone_is_named_and_the_last_figures_stay(bundle_folder: Path) -> None:
    with serving_bundles(bundle_folder) as server:
        watch = Watch(_server(server))
    watch.look()
    assert watch.problem
    assert [sorted(sample.models) for sample in watch.samples] == [["tiny"]]


def test_one_of_several_models_is_shown(
    bundle_folder: Path, top: Top, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(bundle_folder, tmp_path / "other")
    with serving_bundles(bundle_folder, tmp_path / "other") as server:
        for model, status in (("other", 0), ("third", 1)):
            with pytest.raises(SystemExit) as ended:
                top(server.http.base_url, "--once", "--model", model, between_looks=lambda _: None)
            assert ended.value.code == status
    said = capsys.readouterr()
    assert [line for line in said.out.splitlines() if "policy" in line] == ["other  policy 1"]
    assert said.err == "offramp: no model third is served; there are other, tiny\n"


def test_models_that_come_and_go_are_shown_while_they_are_served(
    bundle_folder: Path, top: Top, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(bundle_folder, tmp_path / "other")
    with serving_bundles(bundle_folder, model_repository=tmp_path) as server:

        def post(path: str, **body: str) -> None:
            server.http.request("PUT" if body else "POST", path, json=body).raise_for_status()

        watch = Watch(_server(server))
        post("/v1/models/other/load")
        post("/v1/aliases/mood", model="other")
        for _ in range(2):
            watch.look()
        oldest, recent, newest = watch.samples
        Console().print(screen(newest, recent, oldest))
        assert "other  policy 1" in capsys.readouterr().out
        assert list(Watch(_server(server), "mood").samples[0].models) == ["other"]
        post("/v1/aliases/mood", model="tiny")
        post("/v1/models/other/unload")
        watch.look()
        assert list(watch.samples[-1].models) == ["tiny"]
        with pytest.raises(SystemExit):
            top(server.http.base_url, "--once", "--model", "other", between_looks=lambda _: None)
    assert "no model other is served; there are tiny" in capsys.readouterr().err


def test_key_is_needed_where_the_server_has_keys(
    bundle_folder: Path, tmp_path: Path, top: Top, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key").write_text(make_key(tmp_path, "read"))
    with serving_bundles(bundle_folder, keys=tmp_path / "keys.json") as server:
        url = server.http.base_url
        for options, status in (((), 1), (("--key-file", str(tmp_path / "key")), 0)):
            with pytest.raises(SystemExit) as ended:
                top(url, "--once", *options, between_looks=lambda _: None)
            assert ended.value.code == status
    assert "takes the key from OFFRAMP_KEY or --key-file" in capsys.readouterr().err


def _server(live: LiveServer) -> Server:
    return Server(str(live.http.base_url).rstrip("/"), None, read_tls(None, None))
