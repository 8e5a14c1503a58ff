"""`offramp models` on a server of the test's own."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve.cli import main
from tests.serve.policy_cli.conftest import Offramp, Ran
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.task_bundles import Kind, write_task_bundle


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveServer]:
    for name in ("first", "second"):
        write_task_bundle(tmp_path, Kind("single_label"), name)
    with serving_bundles(tmp_path / "first", model_repository=tmp_path) as server:
        yield server


@pytest.fixture
def here(
    live: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Offramp:
    monkeypatch.setenv("OFFRAMP_URL", str(live.http.base_url))
    monkeypatch.delenv("OFFRAMP_KEY", raising=False)

    def run(*words: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["offramp", "models", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capsys.readouterr())

    return run


def test_a_model_takes_over_from_another_by_its_alias_and_goes_back(
    here: Offramp, live: LiveServer
) -> None:
    assert here("alias", "default", "first").said == "version 2  first\n  default -> first\n"
    assert "second  not loaded\n" in here("list").said
    assert here("load", "green", "--bundle", "second", "--why", "better").status == 0
    assert here("alias", "default", "green").said.splitlines() == [
        "version 4  first, green (bundle second)",
        "  default -> green",
    ]
    assert live.answer("w1")["model"] == "green"
    busy = here("unload", "green")
    assert (busy.status, busy.said) == (1, "")
    assert "default stands for green; move or remove the alias first" in busy.error
    here("alias", "default", "first")
    assert live.answer("w1")["model"] == "first"
    assert here("unload", "green").status == 0
    listed = here("history").said
    assert "load  model green, bundle second, why better" in listed
    assert "alias  alias default, model first, from green" in listed
    removed = here("alias", "default", "--remove", "--why", "one is enough", "--json").said
    assert json.loads(removed)["aliases"] == {}
    assert "alias  alias default, from first, why one is enough" in here("history").said
    assert "first  bundle " in here("list").said


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("load", "third"), 1, "no bundle 'third' in the model repository; it has first, second"),
        (("alias", "mood"), 2, "give the model that the alias is to name, or --remove"),
        (("alias", "mood", "first", "--remove"), 2, "or --remove"),
        (("alias", "mood", ""), 1, "model: "),
        (("load", "first", "--bundle", ""), 1, "bundle: "),
    ],
)
def test_what_cannot_be_is_one_line(
    here: Offramp, words: tuple[str, ...], status: int, said: str
) -> None:
    ran = here(*words)
    assert (ran.status, ran.said) == (status, "")
    assert said in ran.error
