import os
from collections.abc import Callable
from pathlib import Path

import pytest

from serve.bundle.loader import Bundle, load_bundle
from serve.errors import DeviceUnavailable
from serve.runtime import hardware
from serve.runtime.hardware import available_threads, choose_precision
from tests.serve.support.bundles import rewrite_manifest


@pytest.fixture
def int8_only(bundle_copy: Callable[..., Path]) -> Bundle:
    folder = bundle_copy("int8-only")
    rewrite_manifest(folder, lambda manifest: manifest["variants"].pop("fp32"))
    return load_bundle(folder)


def test_fewer_cores_by_affinity_mean_fewer_threads() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert available_threads() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a folder that stands for /sys/fs/cgroup; the process is in no cgroup but the root."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(hardware, "CGROUPS", tmp_path / "cgroups")
    monkeypatch.setattr(hardware, "MEMBERSHIP", tmp_path / "membership")
    return tmp_path


def quota(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


@pytest.mark.parametrize(
    ("cpu_max", "threads"),
    [("max 100000", 8), ("300000 100000", 3), ("150000 100000", 2), ("1000 100000", 1)],
)
def test_cgroup_quota_bounds_the_threads(eight_cores: Path, cpu_max: str, threads: int) -> None:
    quota(eight_cores / "cgroups", cpu__max=cpu_max)
    assert available_threads() == threads


def test_the_least_quota_on_the_way_to_the_root_holds(eight_cores: Path) -> None:
    (eight_cores / "membership").write_text("0::/system.slice/offramp.service\n")
    quota(eight_cores / "cgroups/system.slice", cpu__max="500000 100000")
    quota(eight_cores / "cgroups/system.slice/offramp.service", cpu__max="600000 100000")
    quota(eight_cores / "cgroups/other.slice", cpu__max="100000 100000")
    assert available_threads() == 5


@pytest.mark.parametrize(("limit", "threads"), [("-1", 8), ("200000", 2)])
@pytest.mark.parametrize("place", [".", "docker/1f"])
def test_cgroups_of_version_1_count_too(
    eight_cores: Path, place: str, limit: str, threads: int
) -> None:
    (eight_cores / "membership").write_text("5:memory:/other\n3:cpuacct,cpu:/docker/1f\n")
    folder, not_ours = eight_cores / "cgroups/cpu" / place, eight_cores / "cgroups/cpu/other"
    quota(folder, cpu__cfs_quota_us=limit, cpu__cfs_period_us="100000")
    quota(not_ours, cpu__cfs_quota_us="100000", cpu__cfs_period_us="100000")
    assert available_threads() == threads


@pytest.mark.parametrize(
    ("flags", "precision"),
    [
        ("flags : fpu avx512f avx512_vnni\n", "int8"),
        ("flags : fpu avx2 avx_vnni\n", "int8"),
        ("flags : fpu avx512f\n", "fp32"),
        ("flags : fpu not_avx_vnni_at_all\n", "fp32"),
        (None, "fp32"),
    ],
)
def test_auto_is_int8_where_the_processor_is_fast_at_it(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    bundle: Bundle,
    flags: str | None,
    precision: str,
) -> None:
    if flags is not None:
        (tmp_path / "cpuinfo").write_text(f"processor : 0\n{flags}")
    monkeypatch.setattr(hardware, "CPUINFO", tmp_path / "cpuinfo")
    assert choose_precision("auto", bundle) == precision


def test_auto_takes_what_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, int8_only: Bundle
) -> None:
    monkeypatch.setattr(hardware, "CPUINFO", tmp_path / "missing")
    assert choose_precision("auto", int8_only) == "int8"


def test_a_precision_that_the_bundle_lacks_is_refused(bundle: Bundle) -> None:
    with pytest.raises(DeviceUnavailable):
        choose_precision("fp16", bundle)
