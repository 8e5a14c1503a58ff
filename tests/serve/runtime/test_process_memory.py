"""Large blocks in pages of 2 MiB."""

import ctypes
import mmap
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from serve.runtime.process_memory import settle_memory

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


def test_a_system_without_either_call_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    settle_memory()
