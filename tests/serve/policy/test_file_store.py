"""The folder of `offramp serve --state`."""

import errno
import itertools
import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serve.errors import InvalidRequest, Unavailable
from serve.policy.entry import Change
from serve.policy.file_store import FileStore, opened
from serve.policy.store import KEPT_COUNTS, KEPT_VERSIONS
from tests.serve.policy.test_store import entry, versions

BUNDLES = {"m": "a" * 64}
BASELINE = Change("bundle", None, "baseline")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Return the file of a log with two entries."""
    store = FileStore(tmp_path, BUNDLES)
    assert store.append("m", entry(1, BASELINE))
    assert store.append("m", entry(2, Change("ops", "slow")))
    return tmp_path / "m.policy.jsonl"


def reopened(folder: Path, sha256: str = "a" * 64) -> FileStore:
    store = FileStore(folder, {"m": sha256})
    store.check()
    return store


def test_log_is_lines_of_json_that_name_the_bundle(lines: Path) -> None:
    header, *entries = map(json.loads, lines.read_text().splitlines())
    assert header == {"model": "m", "bundle": "a" * 64, "written_with_version": 1}
    assert [(each["version"], each["by"], each["why"]) for each in entries] == [
        (1, "bundle", None),
        (2, "ops", "slow"),
    ]
    assert lines.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("num_left", range(1, 40, 7))
def test_line_that_was_written_in_part_is_dropped(
    lines: Path, num_left: int, caplog: pytest.LogCaptureFixture
) -> None:
    whole = lines.read_bytes()
    first = whole[: whole.index(b"\n", whole.index(b"\n") + 1) + 1]
    lines.write_bytes(whole[: len(first) + num_left])
    store = reopened(lines.parent)
    assert versions(store) == [1]
    assert f"{lines}: the last line was written in part, and is dropped" in caplog.text
    assert lines.read_bytes() == first
    assert store.append("m", entry(2))
    assert versions(reopened(lines.parent)) == [2, 1]


def test_line_of_a_process_that_was_killed_while_it_wrote_is_dropped_by_the_next_change(
    lines: Path,
) -> None:
    running = FileStore(lines.parent, BUNDLES)
    assert versions(running) == [2, 1]
    with open(lines, "ab") as file:
        file.write(b'{"version":3,"poli')
    assert versions(running) == [2, 1]
    assert running.append("m", entry(3))
    assert versions(running) == versions(reopened(lines.parent)) == [3, 2, 1]


@pytest.mark.parametrize(
    ("number", "line", "message"),
    [
        (0, "{", "line 1: must be JSON that says model and bundle"),
        (0, "", "line 1: must be JSON that says model and bundle"),
        (0, "3", "line 1: must be JSON that says model and bundle"),
        (1, "{", "line 2: not JSON"),
        (1, "", "line 2: not JSON"),
        (2, '{"version": 2}', "line 3: policy: required field is missing"),
        (2, '{"version": 1, "policy": {}, "source": "api", "baseline": ""}', "line 3: version 1"),
        (2, "\ud800", "line 3: not JSON"),
    ],
)
def test_other_line_that_cannot_be_read_is_refused_with_its_place(
    lines: Path, number: int, line: str, message: str
) -> None:
    old = lines.read_text().splitlines()
    content = "\n".join([*old[:number], line, *old[number + 1 :], ""])
    lines.write_text(content, errors="surrogatepass")
    with pytest.raises(Unavailable, match=f"{lines}: {message}"):
        reopened(lines.parent)
    assert lines.read_text(errors="surrogatepass") == content


def test_files_of_another_bundle_are_set_aside(
    lines: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = lines.parent
    reopened(folder).put_counts("m", "r", b'{"n": 1}')
    lines.write_bytes(before := lines.read_bytes() + b'{"of": "another release"}\n')
    for number, sha256 in enumerate(("b", "a" * 64, "b")):
        store = reopened(folder, sha256)
        assert (store.latest("m"), store.counts("m")) == (None, {})
        assert store.append("m", entry(1, BASELINE))
        assert f"{lines} is of another bundle; it is kept as {lines.name}.old" in caplog.text
        aside = [path.name for path in folder.glob(f"{lines.name}.old*")]
        assert len(aside) == number + 1
    assert (folder / f"{lines.name}.old").read_bytes() == before
    assert json.loads((folder / "m.audits.json.old").read_bytes())["counts"] == {"r": {"n": 1}}


def test_of_files_that_were_set_aside_the_newest_are_kept(lines: Path) -> None:
    for number in range(2, 40):
        store = reopened(lines.parent, f"{number}")
        assert store.append("m", entry(number, BASELINE))
    aside = {path.name.rpartition(".")[2] for path in lines.parent.glob(f"{lines.name}.old*")}
    assert aside == {str(number) for number in range(19, 39)}


def test_files_of_a_model_that_is_not_served_stay(lines: Path) -> None:
    FileStore(lines.parent, {"other": "b"}).check()
    assert versions(reopened(lines.parent)) == [2, 1]


def test_log_that_has_grown_is_written_anew_with_what_is_kept(lines: Path) -> None:
    store, other = (FileStore(lines.parent, BUNDLES) for _ in range(2))
    most = 0
    for version in range(3, 3 * KEPT_VERSIONS):
        assert store.append("m", entry(version))
        most = max(most, len(lines.read_bytes().splitlines()) - 1)
        assert other.newest_version("m") == version
    assert most == 2 * KEPT_VERSIONS
    kept = [*range(3 * KEPT_VERSIONS - 1, 2 * KEPT_VERSIONS - 1, -1), 1]
    for each in (store, other, reopened(lines.parent)):
        assert versions(each) == kept


def _append(folder: Path, start: Any, number: int) -> list[int]:
    store, won = FileStore(folder, BUNDLES), []
    start.wait()
    for version in range(3, 43):
        if store.append("m", entry(version, Change(f"p{number}"))):
            won.append(version)
    store.put_counts("m", f"p{number}", b"42")
    return won


def test_of_processes_that_append_at_once_one_gets_each_version(lines: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(3) as pool:
        start = manager.Barrier(3)
        asked = [(lines.parent, start, number) for number in range(3)]
        won = pool.starmap(_append, asked, chunksize=1)
    assert sorted(itertools.chain(*won)) == list(range(3, 43))
    store = reopened(lines.parent)
    assert versions(store) == list(range(42, 0, -1))
    assert store.counts("m") == {f"p{number}": b"42" for number in range(3)}


@pytest.mark.parametrize("fails", ["write", "fsync"])
def test_change_that_the_disk_does_not_take_leaves_no_trace(
    lines: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    store, before = FileStore(lines.parent, BUNDLES), lines.read_bytes()

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        if fails == "fsync":
            patched.setattr(os, "fsync", full)
        else:
            patched.setattr("serve.policy.log_file._write_all", full)
        with pytest.raises(Unavailable, match="No space left on device; the policy stays"):
            store.append("m", entry(3))
    assert lines.read_bytes() == before
    assert versions(store) == [2, 1]
    assert store.append("m", entry(3))


def test_second_server_is_refused_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "state"
    with opened(folder, BUNDLES) as held:
        assert held == folder
        with pytest.raises(
            InvalidRequest, match=f"{folder}: another server, process {os.getpid()}"
        ):
            opened(folder, BUNDLES).__enter__()
    with opened(folder, BUNDLES):
        pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder.write_text(""), "File exists"),
        (lambda folder: (folder / "lock").mkdir(parents=True), "Is a directory"),
    ],
)
def test_folder_that_cannot_be_used_is_refused(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    folder = tmp_path / "state"
    make(folder)
    with pytest.raises(InvalidRequest, match=f"--state {folder}: {message}"):
        opened(folder, BUNDLES).__enter__()


@pytest.mark.parametrize("content", ["", "[]", '{"counts": []}', "{"])
def test_counts_that_cannot_be_read_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "m.audits.json").write_text(content)
    with pytest.raises(Unavailable, match=r"m\.audits\.json"):
        reopened(tmp_path)


def test_counts_are_kept_for_the_next_server(tmp_path: Path) -> None:
    store = reopened(tmp_path)
    for number in range(KEPT_COUNTS + 1):
        store.put_counts("m", f"r{number}", b'{"n": %d}' % number)
    counts = reopened(tmp_path).counts("m")
    assert (len(counts), counts["r1"]) == (KEPT_COUNTS, b'{"n":1}')
