from pathlib import Path

import pytest

from loadtest.http import server_process as server
from loadtest.http.client import Client
from loadtest.http.server_process import ServerFailed, serve_bundle
from tests.loadtest.conftest import MakeChild


def ignore(_: float) -> None:
    """Wait in silence."""


def test_server_is_ready_inside_its_block_and_gone_after_it(make_child: MakeChild) -> None:
    with make_child() as child:
        child.wait_until_ready(30.0, ignore)
        assert Client(child.url).ready()
    assert not Client(child.url).ready()


def test_server_that_dies_is_reported_with_its_last_lines(make_child: MakeChild) -> None:
    with (
        pytest.raises(ServerFailed, match=r"ended before it was ready:\nno bundle here"),
        make_child("fails to start") as child,
    ):
        child.wait_until_ready(30.0, ignore)


def test_server_that_is_never_ready_is_given_up(make_child: MakeChild) -> None:
    with (
        pytest.raises(ServerFailed, match="not ready after 0 s"),
        make_child("is never ready") as child,
    ):
        child.wait_until_ready(0.0, ignore)


def test_block_that_raises_still_ends_its_server(make_child: MakeChild) -> None:
    with pytest.raises(KeyboardInterrupt), make_child() as child:
        child.wait_until_ready(30.0, ignore)
        raise KeyboardInterrupt
    assert not Client(child.url).ready()


def test_error_in_the_block_is_not_hidden_by_one_at_the_end(make_child: MakeChild) -> None:
    with pytest.raises(ZeroDivisionError), make_child("ends with an error") as child:
        child.wait_until_ready(30.0, ignore)
        raise ZeroDivisionError


def test_server_that_ends_with_an_error_is_a_failure(make_child: MakeChild) -> None:
    with (
        pytest.raises(ServerFailed, match=r"ended with status 1:\ncould not save"),
        make_child("ends with an error") as child,
    ):
        child.wait_until_ready(30.0, ignore)


def test_server_that_ignores_sigterm_is_killed_and_a_failure(
    make_child: MakeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_STOP_S", 0.0)
    with (
        pytest.raises(ServerFailed, match="1 processes of the server did not end"),
        make_child("ignores SIGTERM") as child,
    ):
        child.wait_until_ready(30.0, ignore)
    assert not Client(child.url).ready()


def test_process_that_the_server_leaves_behind_is_a_failure(make_child: MakeChild) -> None:
    with (
        pytest.raises(ServerFailed, match="1 processes of the server did not end"),
        make_child("leaves a child") as child,
    ):
        child.wait_until_ready(30.0, ignore)


def test_missing_bundle_is_reported_by_the_command_itself(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerFailed, match="ended before it was ready"),
        serve_bundle(tmp_path / "nothing") as child,
    ):
        child.wait_until_ready(60.0, ignore)
