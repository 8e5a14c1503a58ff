"""The names of the kernels that attention takes on CUDA."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile

from loadtest.bench.gpu.bound_graph import BoundGraph
from loadtest.bench.gpu.device_variant import DeviceVariant
from loadtest.bench.inputs import Shape

_NAMES = "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO"
_KERNEL = "SdpaKernel="


def kernel_names(variant: DeviceVariant, shape: Shape) -> list[str]:
    """Return the kernels that attention says it takes on CUDA; it prints them to stdout."""
    path = variant.bundle.segment_paths(variant.precision)[len(variant.chain) // 2]
    os.environ[_NAMES] = "1"
    try:
        with _printed() as lines:
            BoundGraph(variant.place.opener()(path), variant, shape).run()
    finally:
        del os.environ[_NAMES]
    return [line.strip() for line in lines if _KERNEL.lower() in line.lower()] or lines[:3]


@contextmanager
def _printed() -> Iterator[list[str]]:
    """Catch what C++ code prints meanwhile; the list is filled at the end."""
    lines: list[str] = []
    sys.stdout.flush()
    with TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            yield lines
        finally:
            os.dup2(kept, 1)
            os.close(kept)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()
