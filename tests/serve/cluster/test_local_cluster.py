"""What the command's own process does; servers as real processes are in test_replica.py."""

import os
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from serve.bundle.loader import Bundle
from serve.cli import app
from serve.cluster import ray_process
from serve.cluster.deployment_options import LocalReplicas, local_options
from serve.cluster.log_socket import LogSocket, collecting
from serve.cluster.node import local_node, session_folder
from serve.errors import Unavailable
from serve.log_output import Output
from serve.runtime import cuda_provider
from tests.support.patience import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own imports raise some
    import ray


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that sessions' folders are made in."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path


def test_folder_of_a_session_is_closed_to_other_users_and_removed(parent: Path) -> None:
    with pytest.raises(ZeroDivisionError), session_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert list(parent.iterdir()) == [folder]
        (folder / "ray").mkdir()
        1 / 0  # noqa: B018
    assert not list(parent.iterdir())


def test_parent_that_is_not_there_is_named(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(parent / "nothing"))
    with pytest.raises(Unavailable) as refused, session_folder():
        pass
    assert str(parent / "nothing") in str(refused.value)


def test_disk_that_is_full_or_fills_up_while_ray_starts_is_named(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(**options: object) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
        raise TimeoutError("Timed out waiting for file")

    monkeypatch.setattr(ray, "init", start)
    for _ in range(2):
        with (
            pytest.raises(Unavailable) as refused,
            session_folder() as folder,
            local_node(folder, num_cpus=1),
        ):
            pass
        assert f"the disk of {parent}" in str(refused.value)
    assert not list(parent.iterdir())


@pytest.mark.parametrize(
    ("said", "times"), [("The current node timed out during startup.", 3), ("No such port", 1)]
)
def test_a_start_that_ray_gives_up_on_a_busy_machine_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, times: int
) -> None:
    def start(**options: object) -> None:
        tried.append(options)
        raise Exception(said)  # Ray raises Exception itself

    tried: list[object] = []
    ended: list[int] = []
    monkeypatch.setattr(ray, "init", start)
    monkeypatch.setattr(ray_process, "end_session", lambda session, spared: ended.append(spared))
    with pytest.raises(Unavailable):
        ray_process.start(SimpleNamespace(folder=tmp_path, num_gpus=0))  # type: ignore[arg-type]
    assert len(tried) == times
    assert ended == [os.getpid()] * (times - 1), "what was started before"


@pytest.mark.parametrize(
    ("options", "replicas"),
    [
        (("--replicas", "4"), LocalReplicas(4, 1)),
        (("--replicas", "8", "--gpus-per-replica", "0.5"), LocalReplicas(8, 0.5)),
    ],
)
def test_replicas_on_gpus_ask_ray_for_them(
    half_bundle: Bundle,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    replicas: LocalReplicas,
) -> None:
    started: list[LocalReplicas] = []
    monkeypatch.setattr(cuda_provider, "fault", lambda: None)
    monkeypatch.setattr(cuda_provider, "num_devices", lambda: 4)
    monkeypatch.setattr(
        "serve.cluster.local_cluster.serve_on_ray", lambda *given: started.append(given[2])
    )
    command = ["serve", str(half_bundle.folder), "--device", "cuda", "--port", "0", *options]
    CliRunner().invoke(app, command, catch_exceptions=False)
    assert started == [replicas]
    asked = local_options(replicas, num_cpus=16)
    assert asked["num_replicas"] == replicas.number
    assert asked["ray_actor_options"]["num_gpus"] == replicas.gpu_share


def test_lines_of_replicas_arrive_whole_and_wait_for_an_output_that_takes_none(
    tmp_path: Path,
) -> None:
    written: list[bytes] = []
    path = tmp_path / "lines"
    one, other = LogSocket(path), LogSocket(path)
    with pytest.raises(FileNotFoundError):
        one.write(b"lost\n")
    with collecting(path, Output(written.append, "json")):
        one.write(b"a" * 100_000 + b"\n" + b"b" * 100_000 + b"\nshort\n" + b"c" * 300_000 + b"\n")
        for _ in range(2000):
            other.write(b"whole\n")
        until(lambda: written)
    lines = b"".join(written).splitlines()
    cut = next(line for line in lines if line[:1] == b"c")
    assert 100_000 < len(cut) < 300_000
    rest = [line for line in lines if line not in (cut, b"whole")]
    assert rest == [b"a" * 100_000, b"b" * 100_000, b"short"]
    assert lines.count(b"whole") == 2000
    with pytest.raises(ConnectionRefusedError):
        one.write(b"lost\n")
    one.close()
    other.close()
