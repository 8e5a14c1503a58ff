"""Where a process's memory lies when it loads a model, and what it does with it then."""

import ctypes
import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_HUGE_PAGE = 2 << 20
# Collapsing fills up what a huge page lacks.
_NEARLY_FULL = 0.75
# glibc maps each block for itself that is larger than the largest such block freed so far; it
# learns that of blocks up to 32 MiB.
_LARGE_BLOCK = 31 << 20
# What it then keeps of free memory at the end of a heap; it would be twice that block.
_KEPT_FREE = 1 << 20
# mallopt(3)
_M_TRIM_THRESHOLD = -1
# madvise(2)
_MADV_DONTNEED = 4
_MADV_COLLAPSE = 25  # Linux 6.1
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+) *(.*)")


class _Mapping(NamedTuple):
    """A line of /proc/self/smaps, and how many KiB of its pages are no file's."""

    begin: int
    end: int
    rights: str
    inode: int
    name: str
    own_kib: int


@contextmanager
def loading_weights() -> Iterator[None]:
    """Let what is loaded meanwhile lie together, and settle it (`settle_memory`) at the end.

    Weights of a few MB would lie alone between files, where few huge pages find room. Once the C
    library has freed a large block it takes others as large from what it has in one piece. What
    is free at the end of a heap later goes back to the system all the same.
    """
    library = ctypes.CDLL(None)
    is_glibc = hasattr(library, "malloc_trim")
    if is_glibc:
        library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        library.free.argtypes = [ctypes.c_void_p]
        library.free(library.malloc(_LARGE_BLOCK))
    yield
    if is_glibc:
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE)
    settle_memory()


def settle_memory() -> None:
    """Give back what loading needed for a while, and put what stays into huge pages."""
    give_back_memory()
    library = ctypes.CDLL(None)
    madvise = getattr(library, "madvise", None)
    if not madvise or not Path("/proc/self/smaps").exists():
        return
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for mapping in list(_mappings()):
        if _is_weights(mapping):
            # The kernels hold what they have made of most of them. Who reads the rest (word
            # embeddings) finds them in the system's cache of the file.
            madvise(mapping.begin, mapping.end - mapping.begin, _MADV_DONTNEED)
        elif _is_own(mapping):
            # A short text's time is that of reading weights, and over pages of 4 KiB a good part
            # of it goes into finding them. A refusal changes nothing.
            for begin in _nearly_full(mapping, library).tolist():
                madvise(begin, _HUGE_PAGE, _MADV_COLLAPSE)


def give_back_memory() -> None:
    """Return to the system what loading models needed for a while, where the C library can.

    Of a BERT-base in fp32 that is 160 MB: its weights, before they were packed for the kernels.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


def _is_weights(mapping: _Mapping) -> bool:
    """Tell whether it is a segment's file, as it is on the disk."""
    return mapping.name.endswith(".onnx") and not mapping.own_kib


def _is_own(mapping: _Mapping) -> bool:
    return not mapping.inode and mapping.name in ("", "[heap]") and mapping.rights == "rw-p"


def _nearly_full(mapping: _Mapping, library: ctypes.CDLL) -> NDArray[np.int64]:
    """Return where huge pages could begin of which little is not in memory."""
    first, last = -(-mapping.begin // _HUGE_PAGE), mapping.end // _HUGE_PAGE
    if last <= first:
        return np.empty(0, np.int64)
    begins = np.arange(first, last) * _HUGE_PAGE
    present = np.zeros((len(begins), _HUGE_PAGE // mmap.PAGESIZE), np.uint8)
    library.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    if library.mincore(int(begins[0]), len(begins) * _HUGE_PAGE, present.ctypes.data):
        return np.empty(0, np.int64)
    # The other bits mean nothing.
    enough: NDArray[np.bool_] = (present & 1).mean(axis=1) >= _NEARLY_FULL
    return begins[enough]


def _mappings() -> Iterator[_Mapping]:
    for entry in re.split(r"\n(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text()):
        if found := _MAPPING.match(entry):
            begin, end, rights, inode, name = found.groups()
            own = re.search(r"^Anonymous: *(\d+) kB", entry, re.MULTILINE)
            own_kib = int(own[1]) if own else 1
            yield _Mapping(int(begin, 16), int(end, 16), rights, int(inode), name, own_kib)
