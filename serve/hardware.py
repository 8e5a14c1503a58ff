"""What this machine offers: cores, instruction sets, and the precision that suits it."""

import os
from pathlib import Path

from serve.bundle import Bundle
from serve.errors import DeviceUnavailable
from serve.manifest import Precision

CPUINFO = Path("/proc/cpuinfo")
CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_threads() -> int:
    """Return how many cores this process may use, by affinity and cgroup quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, _cgroup_cores() or cores or 1))


def choose_precision(wish: str, bundle: Bundle) -> Precision:
    """Resolve `auto` and check that the bundle carries the variant.

    `auto` is int8 where the processor has VNNI and the bundle carries it, else fp32.

    Raises:
        DeviceUnavailable: naming the variants there are.
    """
    variants = bundle.manifest.variants
    if wish == "auto":
        wish = "int8" if "int8" in variants and has_vnni() else "fp32"
        if wish not in variants:
            wish = next(iter(variants))
    for precision in variants:
        if precision == wish:
            return precision
    raise DeviceUnavailable(
        f"bundle {bundle.name} has no {wish} variant; it has {', '.join(variants)}"
    )


def has_vnni() -> bool:
    """Tell whether the processor multiplies int8 fast (AVX512-VNNI or AVX-VNNI)."""
    flags = CPUINFO.read_text().split() if CPUINFO.is_file() else []
    return "avx512_vnni" in flags or "avx_vnni" in flags


def _cgroup_cores() -> int | None:
    """Return the cgroup v2 CPU quota in whole cores, rounded up, or None if unlimited."""
    if not CGROUP_QUOTA.is_file():
        return None
    limit, period = CGROUP_QUOTA.read_text().split()
    return None if limit == "max" else -(-int(limit) // int(period))
