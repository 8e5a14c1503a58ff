import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from serve.api.access import LOOPBACK_HOSTS
from serve.cli import app
from serve.config import ServerConfig
from serve.errors import InvalidBundle, InvalidRequest, OfframpError
from serve.http.settings import ConnectionLimits
from serve.launch import Launch, check_host, is_loopback, launch, reachable

STANDALONE = pytest.mark.parametrize("standalone", [True, False])


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Return a port on which another program listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.fixture
def wanted(bundle_folder: Path, taken_port: int) -> Launch:
    """Return arguments with a taken port, so that a test that fails does not serve for ever."""
    config = ServerConfig(bundles=[str(bundle_folder)], precision="fp32", no_auth=True)
    return Launch(config, "127.0.0.1", taken_port)


def changed(wanted: Launch, **fields: Any) -> Launch:
    """Return arguments with other values, the command's own or the server's."""
    own = {name: fields.pop(name) for name in fields.keys() & set(Launch.__slots__)}
    return replace(wanted, config=wanted.config.model_copy(update=fields), **own)


@STANDALONE
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({}, "127.0.0.1:"),
        ({"host": "192.0.2.1"}, "192.0.2.1:"),
        ({"host": "no.such.host.invalid"}, "no.such.host.invalid:"),
        ({"host": "127.0.0.1:80"}, "--host"),
        ({"precision": "fp16"}, "fp16"),
        ({"active_exits": ""}, "--active-exits"),
        ({"device": "cpu", "gpus_per_replica": 1}, "--gpus-per-replica"),
    ],
)
def test_what_cannot_be_had_is_refused_before_anything_starts(
    wanted: Launch,
    standalone: bool,
    change: dict[str, Any],
    named: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(OfframpError) as refused:
        launch(changed(wanted, **change), standalone)
    assert named in str(refused.value)
    assert "starting" not in capsys.readouterr().out


@STANDALONE
def test_wrong_bundles_are_refused_before_anything_is_printed(
    wanted: Launch,
    standalone: bool,
    bundle_copy: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    [folder] = map(Path, wanted.config.bundles)
    for bundles in ([str(folder), str(bundle_copy(folder.name))], [str(tmp_path)]):
        with pytest.raises(InvalidBundle):
            launch(changed(wanted, bundles=bundles), standalone)
    assert not capsys.readouterr().out


def test_replicas_need_ray(wanted: Launch) -> None:
    with pytest.raises(InvalidRequest):
        launch(replace(wanted, replicas=2), standalone=True)


SERVERS = {
    True: "serve.standalone.serve_standalone",
    False: "serve.cluster.local_cluster.serve_on_ray",
}


@STANDALONE
def test_free_port_is_held_while_the_server_starts(
    wanted: Launch,
    standalone: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def start(*given: object) -> None:
        next(filter(callable, given))()  # type: ignore[operator]
        port = int(capsys.readouterr().out.split("http://127.0.0.1:")[1].split(" ")[0])
        with pytest.raises(OSError, match="Address already in use"), socket.socket() as other:
            other.bind(("127.0.0.1", port))

    monkeypatch.setattr(SERVERS[standalone], start)
    launch(replace(wanted, port=0), standalone)
    assert capsys.readouterr().out == "stopped\n"


@pytest.fixture
def started_with(bundle_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return what the command would start a server with, for some options."""
    configs: list[ServerConfig] = []
    monkeypatch.setattr(SERVERS[True], lambda config, *_: configs.append(config))

    def start(*options: str) -> ServerConfig:
        arguments = ["serve", str(bundle_folder), "--standalone", "--port", "0", *options]
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return configs[-1]

    return start


LIMITS = """\
tokenizer_threads: 7
max_batch_rows: 48
connections: {head_timeout_s: 1.5, idle_timeout_s: 2.5, max_connections: 6}
"""


def test_bounds_that_the_command_is_given_reach_the_server(
    started_with: Callable[..., ServerConfig], tmp_path: Path
) -> None:
    (tmp_path / "limits.yaml").write_text(LIMITS)
    config = started_with("--limits", str(tmp_path / "limits.yaml"))
    usual = ConnectionLimits()
    assert config.connections == replace(
        usual, head_timeout_s=1.5, idle_timeout_s=2.5, max_connections=6
    )
    assert config.tokenizer_threads == 7
    assert config.batch_limits("cuda").max_rows == 48
    assert started_with("--limits", '{"max_inputs": 3}').max_inputs == 3
    assert started_with().connections == usual


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ("/nowhere", "/nowhere"),
        ("pipe", "pipe: "),
        ("huge", "huge: "),
        ("number", "number: "),
        ('{"connections": {"head_timeout_s": .nan}}', "connections.head_timeout_s"),
        ('{"max_input": 3}', "max_input"),
        ('{"connections": {"head_timeout": 3}}', "connections.head_timeout"),
        ('{"connections": {"head_timeout_s": 0}}', "connections.head_timeout_s"),
        ('{"max_batch_tokens": 2000, "max_queue_tokens": 1000}', "max_queue_tokens"),
    ],
)
def test_bounds_that_cannot_be_are_named(
    bundle_folder: Path,
    tmp_path: Path,
    limits: str,
    named: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("number").write_text("3")
    with open("huge", "wb") as huge:
        huge.truncate(20 << 20)
    words = ["serve", str(bundle_folder), "--port", "0", "--limits", limits]
    with pytest.raises((OfframpError, OSError)) as refused:
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("options", "hosts"),
    [
        ((), LOOPBACK_HOSTS),
        (("--host", "127.1.2.3"), LOOPBACK_HOSTS),
        (("--host", "0.0.0.0", "--no-auth"), ("*",)),
        (
            ("--allowed-host", "a.example", "--allowed-host", "*.b.example"),
            ("a.example", "*.b.example"),
        ),
    ],
)
def test_server_on_loopback_has_loopback_names_unless_told_others(
    started_with: Callable[..., ServerConfig], options: tuple[str, ...], hosts: tuple[str, ...]
) -> None:
    assert started_with(*options).allowed_hosts == list(hosts)


@pytest.mark.parametrize(
    ("host", "in_url", "loopback"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("localhost", "localhost", True),
        ("::1", "[::1]", True),
        ("[::1]", "[::1]", True),
        ("0.0.0.0", "127.0.0.1", False),
        ("::", "[::1]", False),
        ("[::]", "[::1]", False),
        ("2001:db8::1", "[2001:db8::1]", False),
        ("server.example", "server.example", False),
    ],
)
def test_host_is_shown_as_urls_have_it_and_known_as_loopback(
    host: str, in_url: str, loopback: bool
) -> None:
    assert reachable(host) == in_url
    assert is_loopback(host) is loopback
    check_host(host)


@pytest.mark.parametrize("host", ["", "http://127.0.0.1", "127.0.0.1:8000", "*", "a/b"])
def test_host_that_is_no_address_is_said_to_be_none(tmp_path: Path, host: str) -> None:
    wanted = Launch(ServerConfig(bundles=[str(tmp_path)]), host, 0)
    with pytest.raises(InvalidRequest) as refused:
        launch(wanted, standalone=True)
    assert f"--host {host!r}" in str(refused.value)
