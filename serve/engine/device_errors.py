"""Tells a device that is out of memory, or lost, from a segment that is broken."""

import re

# ONNX Runtime has no types for them: these are what its CPU and CUDA providers say. A failed call
# is "CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; ...", 2 is no memory.
_NO_MEMORY = re.compile(
    r"failed to allocate memory|memory allocation failed|out of memory|bad_?alloc"
    r"|CUDA_ERROR_OUT_OF_MEMORY|ALLOC(?:ATION)?_FAILED|available memory of \d+ is smaller",
    re.IGNORECASE,
)
_CUDA = re.compile(
    r"\b(?:CUDA|CUBLAS|CUDNN|CURAND|CUFFT) (?:failure|error)\b|\b(?:CUBLAS|CUDNN)_STATUS_"
    r"|\bcudaError|\bCUDA_ERROR_",
    re.IGNORECASE,
)
_LOST = re.compile(r"\bCUDA failure (?!2\b)\d", re.IGNORECASE)


def out_of_memory(error: BaseException) -> bool:
    """Tell whether a smaller batch might have gone through."""
    said = str(error)
    return isinstance(error, MemoryError) or bool(
        _NO_MEMORY.search(said) and not _LOST.search(said)
    )


def device_lost(error: BaseException) -> bool:
    """Tell whether CUDA has failed otherwise than for want of memory.

    Most such errors are sticky: every later call of the process fails too, until it is replaced.
    """
    return bool(_CUDA.search(str(error))) and not out_of_memory(error)
