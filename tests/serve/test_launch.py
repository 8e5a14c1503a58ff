import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import serve.launch
from serve.errors import InvalidBundle, InvalidRequest, OfframpError
from serve.http.listener import PortTaken
from serve.launch import Launch, launch

MakeLaunch = Callable[..., Launch]


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Return a port on which something listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.fixture
def wanted(bundle_folder: Path, taken_port: int) -> MakeLaunch:
    """Make arguments with a taken port, so that a test that fails does not serve for ever."""

    def make(
        *bundles: Path,
        host: str = "127.0.0.1",
        precision: str = "fp32",
        replicas: int = 1,
        active_exits: str | None = None,
    ) -> Launch:
        folders = bundles or (bundle_folder,)
        return Launch(folders, host, taken_port, precision, replicas, active_exits)

    return make


@pytest.mark.parametrize("standalone", [True, False])
def test_taken_port_is_refused_before_anything_starts(
    wanted: MakeLaunch, taken_port: int, standalone: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PortTaken, match=f"listen on 127.0.0.1:{taken_port}: Address already"):
        launch(wanted(), standalone)
    assert "starting" not in capsys.readouterr().out


@pytest.mark.parametrize("run", ["_run_standalone", "_run_on_ray"])
def test_free_port_is_ours_while_the_server_starts(
    wanted: MakeLaunch,
    run: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def start(*given: object) -> None:
        on_ready = given[-1]
        assert callable(on_ready)
        on_ready()
        port = int(capsys.readouterr().out.split("http://127.0.0.1:")[1].split(" ")[0])
        with pytest.raises(OSError, match="Address already in use"), socket.socket() as other:
            other.bind(("127.0.0.1", port))

    monkeypatch.setattr(serve.launch, run, start)
    launch(replace(wanted(), port=0), standalone=run == "_run_standalone")
    assert capsys.readouterr().out == "stopped\n"


def test_empty_list_of_exits_is_not_all_of_them(wanted: MakeLaunch) -> None:
    with pytest.raises(InvalidRequest, match="--active-exits '': must be auto or layers"):
        launch(wanted(active_exits=""), standalone=True)


@pytest.mark.parametrize("standalone", [True, False])
@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "127.0.0.1:80"])
def test_address_of_another_machine_is_refused(
    wanted: MakeLaunch, standalone: bool, host: str
) -> None:
    with pytest.raises(PortTaken, match=f"cannot listen on {host}:[0-9]+: .*; choose another"):
        launch(wanted(host=host), standalone)


@pytest.mark.parametrize("standalone", [True, False])
def test_two_bundles_of_one_name_are_refused_before_anything_starts(
    wanted: MakeLaunch,
    bundle_folder: Path,
    bundle_copy: Callable[..., Path],
    standalone: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(InvalidBundle, match="two bundles have the same folder name"):
        launch(wanted(bundle_folder, bundle_copy(bundle_folder.name)), standalone)
    assert "starting" not in capsys.readouterr().out


@pytest.mark.parametrize("standalone", [True, False])
def test_bundle_that_cannot_be_loaded_is_refused_before_anything_starts(
    wanted: MakeLaunch, tmp_path: Path, standalone: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidBundle, match=r"manifest\.json is missing"):
        launch(wanted(tmp_path), standalone)
    assert not capsys.readouterr().out


def test_precision_a_bundle_lacks_is_refused(wanted: MakeLaunch) -> None:
    with pytest.raises(OfframpError, match="has no fp16 variant; it has fp32, int8"):
        launch(wanted(precision="fp16"), standalone=True)


def test_replicas_need_ray(wanted: MakeLaunch) -> None:
    with pytest.raises(InvalidRequest, match="--standalone is one process"):
        launch(wanted(replicas=2), standalone=True)
