"""The memory of a process that has loaded a model: pages, garbage, what the system gets back."""

import ctypes
import gc
import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.bundle.manifest import WEIGHTS

_HUGE_PAGE = 2 << 20
# Collapsing fills up what a huge page lacks.
_NEARLY_FULL = 0.75
# glibc maps a block by itself if it is larger than the largest mapped block freed so far. Blocks
# up to 32 MiB raise that limit.
_LARGE_BLOCK = 31 << 20
# How much free memory glibc keeps at the end of a heap; by itself, twice the size of that block.
_KEPT_FREE = 1 << 20
# mallopt(3)
_M_TRIM_THRESHOLD = -1
# madvise(2)
_MADV_DONTNEED = 4
_MADV_COLLAPSE = 25  # Linux 6.1
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+) *(.*)")


class _Mapping(NamedTuple):
    """A line of /proc/self/smaps, and how many KiB of its pages belong to no file."""

    begin: int
    end: int
    rights: str
    inode: int
    name: str
    own_kib: int


@contextmanager
def loading_weights() -> Iterator[None]:
    """Place what is loaded in the block side by side, and call `settle_memory` at the end.

    glibc would map weights of a few MB each by itself, where few huge pages find room. Once it has
    freed a large block, it takes blocks up to that size from its heap. The trim threshold is set
    back at the end, so that free memory at the end of a heap returns to the system.
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
    """Return to the system what only loading needed, and put what stays into huge pages."""
    give_back_memory()
    library = ctypes.CDLL(None)
    madvise = getattr(library, "madvise", None)
    if not madvise or not Path("/proc/self/smaps").exists():
        return
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for mapping in list(_mappings()):
        if _is_weights(mapping):
            # The kernels hold packed copies of most weights. The others (word embeddings) are
            # read from the system's cache of the file.
            madvise(mapping.begin, mapping.end - mapping.begin, _MADV_DONTNEED)
        elif _is_own(mapping):
            # A short text takes as long as reading the weights does, and over pages of 4 KiB a
            # good part of that time is spent on finding pages. A refusal changes nothing.
            for begin in _nearly_full(mapping, library).tolist():
                madvise(begin, _HUGE_PAGE, _MADV_COLLAPSE)


def give_back_memory() -> None:
    """Return to the system what only loading needed, where the C library can.

    For a BERT-base in fp32 that is 160 MB: the weights as they were before kernels packed them.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


def available_bytes() -> int | None:
    """Return how much memory this process may still take; None where the system does not tell.

    That is what the machine has, or what the control group of a container lets it have.
    """
    try:
        found = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    except OSError:
        return None
    bounds = [int(found[1]) << 10] if found else []
    try:
        group = Path("/sys/fs/cgroup")
        most, used = (group / "memory.max").read_text(), (group / "memory.current").read_text()
        cached = re.search(r"^inactive_file (\d+)", (group / "memory.stat").read_text(), re.M)
        if most.strip() != "max":
            bounds.append(int(most) - int(used) + (int(cached[1]) if cached else 0))
    except (OSError, ValueError):
        pass  # no control group, or one of the first version
    return min(bounds, default=None)


def keep_objects() -> None:
    """Spare Python's garbage collector what has been loaded and stays until the process ends.

    A full collection stops every request while it looks at each object there is, of which the
    server alone has 90,000. Thousands of connections make such collections frequent.
    """
    gc.collect()
    gc.freeze()


def _is_weights(mapping: _Mapping) -> bool:
    """Tell whether the mapping is a bundle's file of weights, unchanged."""
    return Path(mapping.name).name == WEIGHTS and not mapping.own_kib


def _is_own(mapping: _Mapping) -> bool:
    return not mapping.inode and mapping.name in ("", "[heap]") and mapping.rights == "rw-p"


def _nearly_full(mapping: _Mapping, library: ctypes.CDLL) -> NDArray[np.int64]:
    """Return the addresses of possible huge pages that are in memory for the most part."""
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
