"""Folders of servers that were killed, and full disks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from serve.cluster.session_folder import session_folder
from serve.errors import Unavailable

HOLD = """
import sys
from serve.cluster.session_folder import session_folder
with session_folder() as folder:
    (folder / "ray").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path


def hold_folder() -> tuple[subprocess.Popen[str], Path]:
    """Start a process that has a folder; return both."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    return process, Path(process.stdout.readline().strip())


def test_folder_of_a_killed_server_goes_at_the_next_start_and_that_of_a_living_one_stays(
    parent: Path,
) -> None:
    killed, left = hold_folder()
    with killed:
        killed.kill()
    assert left.is_dir()
    with hold_folder()[0] as living:
        [of_living] = parent.iterdir()
        with session_folder() as own:
            assert own.stat().st_mode & 0o777 == 0o700
            assert set(parent.iterdir()) == {own, of_living}
        living.communicate()
    assert not list(parent.iterdir())


def test_folder_stays_for_its_logs_after_an_error_until_the_next_start(parent: Path) -> None:
    with pytest.raises(Unavailable), session_folder() as own:
        raise Unavailable
    assert own.is_dir()
    with session_folder():
        assert not own.is_dir()


def test_what_no_server_of_this_user_has_made_is_left_alone(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlocked, open_to_all, linked = (parent / f"offramp-{name}" for name in ("a", "b", "c"))
    for folder in (unlocked, open_to_all):
        folder.mkdir(0o700)
    (open_to_all / "lock").touch()
    open_to_all.chmod(0o777)
    elsewhere = parent / "elsewhere"
    shutil.copytree(open_to_all, elsewhere)
    elsewhere.chmod(0o700)
    linked.symlink_to(elsewhere)
    with session_folder():
        pass
    assert {path.name for path in parent.iterdir()} == {
        "offramp-a", "offramp-b", "offramp-c", "elsewhere"
    }  # fmt: skip
    assert (elsewhere / "lock").exists()

    open_to_all.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with session_folder():
        assert open_to_all.is_dir()


@pytest.mark.parametrize(("free", "inodes"), [(100, 10), (10**9, 0)])
def test_full_disk_is_named_in_one_sentence(
    parent: Path, monkeypatch: pytest.MonkeyPatch, free: int, inodes: int
) -> None:
    full = SimpleNamespace(f_bavail=free, f_frsize=4096, f_files=1000, f_favail=inodes)
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    told = pytest.raises(
        Unavailable, match=f"^Ray does not start: the disk of {parent} is full, and Ray's session "
    )
    with told, session_folder():
        pass
    assert not list(parent.iterdir())


def test_parent_that_is_not_there_is_named(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(parent / "nothing"))
    with (
        pytest.raises(Unavailable, match=r"no folder can be made in .*nothing: No such"),
        session_folder(),
    ):
        pass
