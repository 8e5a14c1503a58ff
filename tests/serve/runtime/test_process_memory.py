"""Large blocks in pages of 2 MiB."""

import ctypes
import mmap
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from serve.bundle.manifest import WEIGHTS
from serve.runtime import process_memory
from serve.runtime.process_memory import loading_weights, settle_memory

_MIB = 1 << 20


@pytest.fixture
def block() -> Iterator[mmap.mmap]:
    """Return 64 MiB of memory, filled."""
    with mmap.mmap(-1, 64 * _MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        np.frombuffer(block, np.uint8)[:] = np.arange(64 * _MIB, dtype=np.uint64) % 251
        yield block


def in_huge_pages(block: mmap.mmap) -> int:
    """Return how many bytes of the mapping that holds the block are in huge pages."""
    address = np.frombuffer(block, np.uint8).ctypes.data
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            begin, end = (int(bound, 16) for bound in found.groups())
            inside = begin <= address < end
        elif inside and line.startswith("AnonHugePages"):
            return int(line.split()[1]) << 10
    return 0


def can_collapse() -> bool:
    """Ask the system itself, with a block of our own."""
    with mmap.mmap(-1, 4 * _MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as small:
        small[:] = b"x" * len(small)
        address = np.frombuffer(small, np.uint8).ctypes.data
        first = -(-address // (2 * _MIB)) * 2 * _MIB
        madvise = ctypes.CDLL(None).madvise
        return not madvise(ctypes.c_void_p(first), ctypes.c_size_t(2 * _MIB), 25)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux tells of huge pages")
def test_large_blocks_move_into_huge_pages_and_keep_their_content(block: mmap.mmap) -> None:
    if not can_collapse():
        pytest.skip("this system collapses no pages (Linux 6.1 and later do)")
    settle_memory()
    content = np.frombuffer(block, np.uint8)
    assert np.array_equal(content[::4099], np.arange(64 * _MIB)[::4099] % 251)
    assert in_huge_pages(block) >= 32 * _MIB


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux tells of huge pages")
def test_blocks_that_are_mostly_empty_are_not_filled_up() -> None:
    with mmap.mmap(-1, 64 * _MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        pages = np.frombuffer(block, np.uint8).reshape(-1, mmap.PAGESIZE)
        pages[: len(pages) // 2 : 2] = 1
        settle_memory()
        assert in_huge_pages(block) == 0
        assert pages[::2].sum() == pages[: len(pages) // 2 : 2].size
        del pages


_BLOCKS_BETWEEN_FILES = """
import contextlib, ctypes, mmap, sys
from serve.runtime.process_memory import loading_weights
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
file = open(sys.executable, "rb")
with loading_weights() if "together" in sys.argv else contextlib.nullcontext():
    blocks, files = [], []
    for _ in range(8):
        blocks.append(library.malloc(3 << 20))
        files.append(mmap.mmap(file.fileno(), mmap.PAGESIZE, access=mmap.ACCESS_READ))
print(max(blocks) - min(blocks) - 7 * (3 << 20))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="so glibc does it")
def test_blocks_lie_together_although_files_are_mapped_between_them() -> None:
    def bytes_between(*arguments: str) -> int:
        command = [sys.executable, "-c", _BLOCKS_BETWEEN_FILES, *arguments]
        return int(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)

    assert bytes_between("together") < mmap.PAGESIZE
    assert bytes_between() >= 7 * mmap.PAGESIZE


_BLOCKS_ONCE_LOADED = """
import ctypes
from pathlib import Path
from serve.runtime.process_memory import loading_weights
library = ctypes.CDLL(None)
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
library.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

def own_kib():
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0])

with loading_weights():
    pass
before = own_kib()
blocks = [library.malloc(3 << 20) for _ in range(8)]
for block in blocks:
    library.memset(block, 1, 3 << 20)
held = own_kib()
for block in blocks:
    library.free(block)
print(held - before, own_kib() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="so glibc does it")
def test_memory_that_is_free_again_goes_back_once_weights_are_loaded() -> None:
    command = [sys.executable, "-c", _BLOCKS_ONCE_LOADED]
    said = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    held, kept = map(int, said.split())
    assert held > 20 << 10
    assert kept < 2 << 10


def test_weights_are_settled_once_they_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[str] = []
    monkeypatch.setattr(process_memory, "settle_memory", lambda: settled.append("settled"))
    with loading_weights():
        assert not settled
    assert settled


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux tells of pages")
@pytest.mark.parametrize("changed", [False, True])
def test_pages_of_a_file_of_weights_go_unless_they_have_been_changed(
    tmp_path: Path, changed: bool
) -> None:
    path = tmp_path / WEIGHTS
    path.write_bytes(b"weights " * (_MIB // 8))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        assert mapped[:7] == mapped[-8:-1] == b"weights"
        if changed:
            mapped[:7] = b"changed"
        settle_memory()
        assert (resident(path) > 0) is changed
        assert mapped[:7] == (b"changed" if changed else b"weights")


def resident(path: Path) -> int:
    """Return how many KiB of a file are in this process's memory."""
    entries = re.split(r"\n(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text())
    found = [re.search(r"^Rss: *(\d+)", entry, re.M) for entry in entries if str(path) in entry]
    return sum(int(rss[1]) for rss in found if rss)


def test_a_system_without_either_call_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with loading_weights():
        pass
