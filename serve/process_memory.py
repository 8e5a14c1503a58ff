"""What a process does with its memory once a model has been loaded."""

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_HUGE_PAGE = 2 << 20
# Thread stacks are smaller; they are mostly empty, and would be filled up.
_WORTH_IT = 16 << 20
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


def settle_memory() -> None:
    """Give back what loading needed for a while, and put what stays into huge pages."""
    give_back_memory()
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if not madvise or not Path("/proc/self/smaps").exists():
        return
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for mapping in list(_mappings()):
        if _is_weights(mapping):
            # The kernels hold what they have made of most of them. Who reads the rest (word
            # embeddings) finds them in the system's cache of the file.
            madvise(mapping.begin, mapping.end - mapping.begin, _MADV_DONTNEED)
        elif _is_large_and_own(mapping):
            # A short text's time is that of reading weights, and over pages of 4 KiB a good part
            # of it goes into finding them. A refusal changes nothing.
            first = -(-mapping.begin // _HUGE_PAGE) * _HUGE_PAGE
            madvise(first, mapping.end // _HUGE_PAGE * _HUGE_PAGE - first, _MADV_COLLAPSE)


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


def _is_large_and_own(mapping: _Mapping) -> bool:
    own = not mapping.inode and mapping.name in ("", "[heap]") and mapping.rights == "rw-p"
    return own and mapping.end - mapping.begin >= _WORTH_IT


def _mappings() -> Iterator[_Mapping]:
    for entry in re.split(r"\n(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text()):
        if found := _MAPPING.match(entry):
            begin, end, rights, inode, name = found.groups()
            own = re.search(r"^Anonymous: *(\d+) kB", entry, re.MULTILINE)
            own_kib = int(own[1]) if own else 1
            yield _Mapping(int(begin, 16), int(end, 16), rights, int(inode), name, own_kib)
