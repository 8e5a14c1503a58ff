"""The database, in memory and in a file. Ray's store is tested in `tests/serve/cluster`."""

import itertools
import json
import multiprocessing
import os
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from serve.errors import InvalidRequest, Unavailable
from serve.policy.database import Database
from serve.policy.document import Policy
from serve.policy.entry import Change, VersionedPolicy
from serve.policy.model_set import ModelSet
from serve.policy.state_folder import DATABASE, READ_ONCE, opened
from tests.support.patience import until

PUT, BASELINE = Change(), Change("bundle", None, "baseline")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / DATABASE


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[Database]:
    with closing(Database(path if request.param == "file" else None)) as made:
        yield made


def entry(version: int, change: Change = PUT) -> VersionedPolicy:
    policy = Policy.model_validate({"default": {"rule": "layer", "layer": version}})
    return VersionedPolicy.of(version, policy, change.source, "", change)


def versions(store: Database, model: str = "m") -> list[int]:
    return [each.version for each in store.policies(model).entries]


def read_again(path: Path) -> list[int]:
    with closing(Database(path)) as store:
        return versions(store)


def test_store_has_each_version_as_it_was_put_once(store: Database) -> None:
    entries = [entry(1), entry(2, Change("ops", "slow", "patch")), entry(5)]
    assert store.policies("m") == (0, [])
    assert all(store.append("m", each) for each in entries)
    assert not any(store.append("m", entry(version)) for version in (1, 2, 4, 5))
    assert store.policies("m") == (5, entries)
    assert store.policies("m", after=2) == (5, entries[2:])
    assert store.policies("m", after=5) == (5, [])
    assert store.policies("other") == (0, [])


def test_store_keeps_the_last_versions_and_the_newest_baseline(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.policy.store.KEPT_VERSIONS", 5)
    for version in range(1, 14):
        store.append("m", entry(version, BASELINE if version in (1, 3) else PUT))
    assert versions(store) == [3, *range(9, 14)]


def test_store_has_the_counts_of_each_replica_and_drops_the_oldest(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.policy.database.KEPT_COUNTS", 3)
    assert store.counts("m") == {}
    for replica in ("a", "b", "c"):
        store.put_counts("m", replica, b"{}")
    store.put_counts("m", "a", b'{"n":7}')
    store.put_counts("other", "b", b"{}")
    assert store.counts("m") == {"a": b'{"n":7}', "b": b"{}", "c": b"{}"}
    store.put_counts("m", "new", b"{}")
    assert store.counts("m") == {"a": b'{"n":7}', "c": b"{}", "new": b"{}"}
    assert store.counts("other") == {"b": b"{}"}


def test_of_replicas_that_raise_the_same_alarm_one_is_first(store: Database) -> None:
    assert store.note_alarm("m", "a")
    assert not store.note_alarm("m", "a")
    assert store.note_alarm("m", "b")
    assert store.note_alarm("other", "a")


def test_set_of_models_is_replaced_by_a_later_one_alone(store: Database) -> None:
    assert store.model_set() is None
    for version, taken in ((0, True), (2, True), (2, False), (1, False), (3, True)):
        assert store.put_model_set(ModelSet(version=version, baseline=str(version))) is taken
    assert store.model_set() == ModelSet(version=3, baseline="3")


def test_version_of_an_earlier_release_is_read() -> None:
    old = '{"version":3,"policy":{"default":{"rule":"never"}},"source":"%s","baseline":"b"}'
    for source, action in (("api", "put"), ("config", "baseline")):
        read = VersionedPolicy.model_validate_json(old % source)
        assert (read.at, read.by, read.why, read.action) == ("", "", None, action)


def _append(path: Path, start: Any, won: Any, number: int) -> None:
    with closing(Database(path)) as store:
        start.wait()
        for version in range(1, 21):
            if store.append("m", entry(version, Change(f"p{number}"))):
                won.put(version)
        store.put_counts("m", f"p{number}", b"42")


def test_of_processes_that_append_at_once_one_gets_each_version(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, won = context.Barrier(2), context.Queue()
    both = [context.Process(target=_append, args=(path, start, won, number)) for number in (0, 1)]
    for each in both:
        each.start()
    assert sorted(won.get(timeout=100) for _ in range(20)) == list(range(1, 21))
    for each in both:
        each.join()
    assert read_again(path) == list(range(1, 21))
    with closing(Database(path)) as store:
        assert store.counts("m") == {"p0": b"42", "p1": b"42"}


def _append_for_ever(path: Path, acknowledged: Any) -> None:
    store = Database(path)
    for version in itertools.count(1):
        store.append("m", entry(version))
        acknowledged.value = version


def test_what_was_acknowledged_outlives_a_process_that_is_killed_while_it_writes(
    path: Path,
) -> None:
    context = multiprocessing.get_context("spawn")
    acknowledged = context.Value("i", 0)
    writer = context.Process(target=_append_for_ever, args=(path, acknowledged))
    writer.start()
    until(lambda: acknowledged.value >= 5)
    writer.kill()
    writer.join()
    newest = read_again(path)[-1]
    assert newest - acknowledged.value in (0, 1)


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """Let no file of this process grow beyond the size that one has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_change_that_the_disk_does_not_take_leaves_no_trace(path: Path) -> None:
    with closing(Database(path)) as store:
        store.append("m", entry(1))
        with full_disk(path), pytest.raises(Unavailable):
            for version in range(2, 100):  # until the pages that there are do not suffice
                store.append("m", entry(version))
        kept = versions(store)
        assert kept == read_again(path) == list(range(1, len(kept) + 1))
        assert store.append("m", entry(len(kept) + 1))


def test_database_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "state"
    with opened(folder) as held:
        assert held == folder
        assert folder.stat().st_mode & 0o077 == 0
        assert (folder / DATABASE).stat().st_mode & 0o077 == 0


def test_second_server_is_refused_the_folder(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(InvalidRequest, match=f"process {os.getpid()},"):
        opened(tmp_path).__enter__()
    with opened(tmp_path):
        pass


def spoil(statement: str, *values: Any) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        with opened(folder), closing(Database(folder / DATABASE)) as store:
            store.append("m", entry(1))
        with closing(sqlite3.connect(folder / DATABASE)) as database, database:
            database.execute(statement, values)

    return make


def holding(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def made(folder: Path) -> None:
        folder.mkdir()
        make(folder / name)

    return made


def writable_by_all(path: Path) -> None:
    path.touch()
    path.chmod(0o666)


def linked(path: Path) -> None:
    path.symlink_to(path.parent.parent / "elsewhere")


@pytest.mark.parametrize(
    ("make", "error", "named"),
    [
        (lambda folder: folder.write_text(""), InvalidRequest, "state"),
        (lambda folder: (folder / "lock").mkdir(parents=True), InvalidRequest, "state"),
        (lambda folder: (folder / DATABASE).mkdir(parents=True), Unavailable, DATABASE),
        (lambda folder: (folder.mkdir(), folder.chmod(0o777)), InvalidRequest, "chmod o-w"),
        (holding("lock", os.mkfifo), InvalidRequest, "lock"),
        (holding("lock", linked), InvalidRequest, "state"),
        (holding(DATABASE, os.mkfifo), Unavailable, DATABASE),
        (holding(DATABASE, linked), Unavailable, DATABASE),
        (holding(f"{DATABASE}-journal", os.mkfifo), Unavailable, "journal is no regular file"),
        (holding(DATABASE, writable_by_all), Unavailable, "every user"),
        (holding("m.policy.jsonl", os.mkfifo), Unavailable, "m.policy.jsonl"),
        (holding("models.json", os.mkfifo), Unavailable, "models.json"),
        (spoil("PRAGMA user_version = 99"), Unavailable, DATABASE),
        (spoil("UPDATE policies SET entry = ?", b"{}"), Unavailable, "version 1 .* of m"),
        (spoil("INSERT INTO model_sets VALUES (1, ?)", b"{"), Unavailable, DATABASE),
    ],
)
def test_folder_that_cannot_be_used_is_refused(
    tmp_path: Path, make: Callable[[Path], object], error: type[Exception], named: str
) -> None:
    folder = tmp_path / "state"
    make(folder)
    with pytest.raises(error, match=named):
        opened(folder).__enter__()


def test_file_that_is_no_database_is_refused_and_stays(path: Path) -> None:
    path.write_bytes(b"policies" * 1000)
    with pytest.raises(Unavailable, match=f"{DATABASE}.*move the file away"):
        opened(path.parent).__enter__()
    assert path.read_bytes() == b"policies" * 1000


def test_file_that_is_moved_away_under_a_server_is_said_to_be(path: Path) -> None:
    with closing(Database(path)) as store:
        path.rename(path.with_name("elsewhere"))
        with pytest.raises(Unavailable, match="moved away"):
            store.append("m", entry(1))


HEADER = json.dumps({"model": "m", "bundle": "a" * 64, "written_with_version": 1})


def old_folder(folder: Path) -> None:
    """Write what the releases before the database have kept."""
    entries = [entry(1, BASELINE), entry(2, Change("ops", "slow"))]
    lines = [HEADER, *(each.model_dump_json() for each in entries), '{"version":3,']
    (folder / "m.policy.jsonl").write_text("\n".join(lines))
    document = {"model": "m", "bundle": "a" * 64, "counts": {"r": {"n": 1}}, "alarms": ["x"]}
    (folder / "m.audits.json").write_text(json.dumps(document))
    (folder / "models.json").write_text(ModelSet(version=4).model_dump_json(by_alias=True))


def test_folder_of_an_earlier_release_is_read_once_and_kept_beside(
    tmp_path: Path, path: Path
) -> None:
    old_folder(tmp_path)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    with opened(tmp_path), closing(Database(path)) as store:
        assert [(e.version, e.by) for e in store.policies("m").entries] == [
            (1, "bundle"),
            (2, "ops"),
        ]
        assert {name: json.loads(each) for name, each in store.counts("m").items()} == {
            "r": {"n": 1}
        }
        assert not store.note_alarm("m", "x")
        assert store.model_set() == ModelSet(version=4)
        assert store.append("m", entry(3))
    aside = tmp_path / READ_ONCE
    assert {each.name: each.read_bytes() for each in aside.iterdir()} == before
    with opened(tmp_path):
        assert read_again(path) == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("m.policy.jsonl", ""),
        ("m.policy.jsonl", "{}\n"),
        ("m.policy.jsonl", entry(1).model_dump_json() + "\n"),
        ("m.policy.jsonl", f'{HEADER}\n{entry(1).model_dump_json()}\n{{"version": 2}}\n'),
        ("m.policy.jsonl", f"{HEADER}\n" + 2 * f"{entry(1).model_dump_json()}\n"),
        ("m.policy.jsonl", f"{HEADER}\n\n"),
        ("m.audits.json", "{"),
        ("m.audits.json", "[]"),
        ("m.audits.json", "[" * 100_000),
        ("m.audits.json", '{"counts": []}'),
        ("m.audits.json", '{"alarms": 3}'),
        ("m.audits.json", '{"alarms": [["x"]]}'),
        ("models.json", "{"),
    ],
)
def test_old_file_that_cannot_be_read_is_refused_and_nothing_of_it_stays(
    tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(Unavailable, match=f"{name}.*move the file away"):
        opened(tmp_path).__enter__()
    assert (tmp_path / name).read_text() == content
    (tmp_path / name).unlink()
    with opened(tmp_path), closing(Database(tmp_path / DATABASE)) as store:
        assert (versions(store), store.counts("m"), store.model_set()) == ([], {}, None)
