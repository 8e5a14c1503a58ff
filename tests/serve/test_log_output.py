"""Outputs that are full or take no more; files that are moved away."""

import json
import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from serve.errors import InvalidRequest
from serve.log_output import MAX_WAITING, BatchedHandler, LogFile, Output, log_output
from serve.logs import ACCESS_LOG
from tests.support.patience import until


class Disk:
    """Takes lines while it is not full."""

    def __init__(self) -> None:
        self.full = False
        self.lines: list[dict[str, object]] = []

    def write(self, lines: bytes) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.lines += map(json.loads, lines.splitlines())


@pytest.fixture
def complaints(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return what is said on stderr."""
    said: list[bytes] = []
    monkeypatch.setattr("serve.log_output.write_stderr", said.append)
    return said


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("log-output-test")
    logger.propagate = False
    yield logger
    logger.handlers.clear()


def test_disk_that_fills_up_is_told_once_and_what_was_lost_when_it_has_room(
    logger: logging.Logger, complaints: list[bytes]
) -> None:
    disk = Disk()
    handler = BatchedHandler(Output(disk.write, "json"))
    logger.addHandler(handler)
    disk.full = True
    for number in range(3):
        logger.warning("lost %d", number)
        handler.flush()
    [complaint] = complaints
    assert json.loads(complaint)["why"] == "No space left on device"
    disk.full = False
    logger.warning("kept")
    handler.flush()
    told, kept = disk.lines
    assert (told["message"], told["lost"], kept["message"]) == ("log lines were lost", 3, "kept")


def test_output_that_takes_no_more_holds_up_no_line_and_what_is_left_out_is_counted(
    logger: logging.Logger,
) -> None:
    disk, stuck, goes_on = Disk(), threading.Event(), threading.Event()

    def write(lines: bytes) -> None:
        stuck.set()
        goes_on.wait()
        disk.write(lines)

    handler = BatchedHandler(Output(write, "json"))
    logger.addHandler(handler)
    logger.error("first")
    stuck.wait()
    for _ in range(MAX_WAITING + 7):
        logger.handle(logging.makeLogRecord({"name": ACCESS_LOG, "levelno": 20}))
    goes_on.set()
    until(lambda: len(disk.lines) == MAX_WAITING + 2)
    assert disk.lines[1]["lost"] == 7


def test_file_that_logrotate_moves_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "offramp.log"
    with closing(LogFile(str(path))) as file:
        file.write(b"one\n")
        path.rename(tmp_path / "offramp.log.1")
        file.write(b"two\n")
        assert path.read_bytes() == b"two\n"
        assert (tmp_path / "offramp.log.1").read_bytes() == b"one\n"
        path.write_bytes(b"")  # logrotate's copytruncate
        file.write(b"three\n")
        assert path.read_bytes() == b"three\n"


def test_lines_of_several_processes_in_one_file_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "offramp.log"
    path.write_bytes(b"earlier\n")

    def write(letter: bytes) -> None:
        with closing(LogFile(str(path))) as file:
            for _ in range(50):
                file.write(letter * 9000 + b"\n" + letter * 9000 + b"\n")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, (b"a", b"b", b"c", b"d")))
    first, *lines = path.read_bytes().splitlines()
    assert first == b"earlier"
    assert len(lines) == 400
    assert {len(line) for line in lines} == {9000}
    assert all(len(set(line)) == 1 for line in lines)


@pytest.mark.parametrize("path", ["no/such/folder.log", "", "{replica}.log", "pipe"])
def test_file_that_cannot_be_written_to_is_named(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidRequest) as refused:
        log_output(tmp_path / path)
    assert str(tmp_path / path) in str(refused.value)


def test_each_replica_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    write: Any = log_output(tmp_path / "{replica}.log", "abc")
    with closing(write.__self__):
        write(b"line\n")
    assert (tmp_path / "abc.log").read_bytes() == b"line\n"
