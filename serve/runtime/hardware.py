"""The machine: its cores, its instruction sets, and the precision that suits it."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.errors import DeviceUnavailable

CPUINFO = Path("/proc/cpuinfo")
CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def available_threads() -> int:
    """Return how many cores this process may use, by affinity and cgroup quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, _cgroup_cores() or cores or 1))


def choose_precision(wish: str, bundle: Bundle) -> Precision:
    """Resolve `auto` and check that the bundle carries the variant.

    `auto` is int8 where the processor has VNNI and the bundle carries it, else fp32.

    Raises:
        DeviceUnavailable: the bundle has no such variant.
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


def cpu_model() -> str:
    """Return the processor's name."""
    lines = CPUINFO.read_text().splitlines() if CPUINFO.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cgroup_cores() -> int | None:
    """Return the lowest CPU quota of this process's cgroups in cores, rounded up, or None."""
    return min(filter(None, map(_quota, _cgroups())), default=None)


def _cgroups() -> Iterator[Path]:
    """Yield the folders of this process's cgroups, v2 and v1, up to their roots.

    In a container the process is mostly in the root; in a systemd unit its cgroup lies deeper.
    """
    membership = MEMBERSHIP.read_text().splitlines() if MEMBERSHIP.is_file() else []
    for line in ("0::/", "0:cpu:/", *membership):
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = CGROUPS / "cpu" if controllers else CGROUPS
        here = root / path.lstrip("/")
        yield from (folder for folder in (here, *here.parents) if folder.is_relative_to(root))


def _quota(cgroup: Path) -> int | None:
    v2, v1 = cgroup / "cpu.max", (cgroup / "cpu.cfs_quota_us", cgroup / "cpu.cfs_period_us")
    if v2.is_file():
        limit, period = v2.read_text().split()
    elif all(file.is_file() for file in v1):
        limit, period = (file.read_text().strip() for file in v1)
    else:
        return None
    return None if limit in ("max", "-1") else -(-int(limit) // int(period))
