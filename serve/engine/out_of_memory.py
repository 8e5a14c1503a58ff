"""Tells a device that is out of memory from a segment that is broken."""

import re

# ONNX Runtime has no type for it: these are what its CPU and CUDA providers say.
_SAID = re.compile(
    r"failed to allocate memory|memory allocation failed|out of memory|bad_?alloc"
    r"|CUDA_ERROR_OUT_OF_MEMORY|ALLOC(?:ATION)?_FAILED|available memory of \d+ is smaller",
    re.IGNORECASE,
)


def out_of_memory(error: BaseException) -> bool:
    """Tell whether a smaller batch might have gone through."""
    return isinstance(error, MemoryError) or bool(_SAID.search(str(error)))
