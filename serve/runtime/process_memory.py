"""The memory of a process that has loaded a model: pages, garbage, what the system gets back."""

import ctypes
import gc
import re
from pathlib import Path
from typing import Final

_HUGE_PAGE: Final = 2 << 20
# madvise(2), since Linux 6.1
_MADV_COLLAPSE: Final = 25


def settle_memory() -> None:
    """Return to the system what only loading needed, and put what stays into huge pages.

    A short text takes as long as reading the weights does, and over pages of 4 KiB a good part of
    that time goes into finding pages. A system that refuses huge pages changes nothing.
    """
    give_back_memory()
    maps, madvise = Path("/proc/self/maps"), getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is None or not maps.exists():
        return
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    # Mappings of no file, which are the C library's heaps and large blocks.
    for begin, end in re.findall(
        r"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0 *(?:\[heap\])?$", maps.read_text(), re.MULTILINE
    ):
        first, last = -(-int(begin, 16) // _HUGE_PAGE), int(end, 16) // _HUGE_PAGE
        if last > first:
            madvise(first * _HUGE_PAGE, (last - first) * _HUGE_PAGE, _MADV_COLLAPSE)


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
