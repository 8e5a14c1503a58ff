"""Choosing a device, with a GPU and without one."""

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

import onnxruntime as ort
import pytest

from serve.bundle.loader import Bundle
from serve.config import ServerConfig
from serve.errors import DeviceUnavailable, InvalidBundle, InvalidRequest
from serve.launch import Launch, launch
from serve.runtime import cuda_provider as cuda
from serve.runtime import placement as placements
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.cuda_runner import CudaRunner
from serve.runtime.device_memory import MOST_BYTES, HostMemory
from serve.runtime.ort_session import session_options
from serve.runtime.placement import Placement, build_runner, place, share_gpus
from serve.runtime.row_taker import GRAPHS

TAKE = GRAPHS / "take.float32.onnx"


@pytest.mark.parametrize(
    ("fault", "fixture", "asked", "placed"),
    [
        (None, "half_bundle", ("auto", "auto"), ("cuda", "fp16")),
        (None, "half_bundle", ("cuda", "auto"), ("cuda", "fp16")),
        (None, "half_bundle", ("cpu", "auto"), ("cpu", "fp32")),
        (None, "half_bundle", ("cpu", "fp16"), ("cpu", "fp16")),
        (None, "bundle", ("auto", "fp32"), ("cpu", "fp32")),
        (None, "bundle", ("auto", "int8"), ("cpu", "int8")),
        (None, "bundle", ("cuda", "int8"), None),
        (None, "bundle", ("cuda", "auto"), None),
        (None, "shared_bundle", ("cpu", "int8"), ("cpu", "int8")),
        ("no driver", "half_bundle", ("auto", "auto"), ("cpu", "fp32")),
        ("no driver", "half_bundle", ("cuda", "auto"), None),
    ],
)
def test_where_a_bundle_runs(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    fault: str | None,
    fixture: str,
    asked: tuple[str, str],
    placed: tuple[str, str] | None,
) -> None:
    monkeypatch.setattr(cuda, "fault", lambda: fault)
    bundle = request.getfixturevalue(fixture)
    if placed is None:
        with pytest.raises(DeviceUnavailable):
            place(bundle, *asked)
    else:
        assert place(bundle, *asked) == placed


def test_on_a_cpu_the_runner_is_the_variants(half_bundle: Bundle) -> None:
    assert isinstance(build_runner(half_bundle, Placement("cpu", "fp32"), 1), CpuRunner)
    assert isinstance(build_runner(half_bundle, Placement("cpu", "fp16"), 1), CudaRunner)


@pytest.mark.parametrize(("num_replicas", "share"), [(5, None), (13, 0.3)])
def test_more_replicas_than_the_gpus_have_room_for_are_refused(
    monkeypatch: pytest.MonkeyPatch, num_replicas: int, share: float | None
) -> None:
    monkeypatch.setattr(cuda, "num_devices", lambda: 4)
    on_gpu = [Placement("cpu", "int8"), Placement("cuda", "fp16")]
    with pytest.raises(InvalidRequest):
        share_gpus(on_gpu, num_replicas, share)
    assert share_gpus(on_gpu, num_replicas - 1, share) == (share or 1)
    assert share_gpus(on_gpu[:1], num_replicas, None) == 0


def test_the_gpus_runner_is_given_the_memory_limit(
    half_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    def open_session(
        model: Path, options: ort.SessionOptions, memory_bytes: int | None
    ) -> ort.InferenceSession:
        limits.append(memory_bytes)
        return ort.InferenceSession(model, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(cuda, "open_session", open_session)
    monkeypatch.setattr(placements, "CudaMemory", HostMemory)
    monkeypatch.setattr(placements, "try_out", lambda *_: None)  # there is no GPU to try it on
    runner = build_runner(half_bundle, Placement("cuda", "fp16"), 1, gpu_memory_gb=1.5)
    assert len(runner) == 4
    left = 3 * 2**29 - MOST_BYTES
    assert limits == [left] * 9, "four segments, four heads, and the graph that chooses rows"


def test_a_session_that_would_run_on_the_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ort.InferenceSession
    monkeypatch.setattr(cuda, "require", lambda: None)
    monkeypatch.setattr(cuda, "_share_memory", lambda memory_bytes: None)
    cpu = {"providers": ["CPUExecutionProvider"]}
    monkeypatch.setattr(
        ort, "InferenceSession", lambda model, options, **_: session(model, options, **cpu)
    )
    with pytest.raises(DeviceUnavailable):
        cuda.open_session(TAKE, session_options(1), None)


def test_a_session_never_falls_back_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    wished = {}

    def refuse(model: Path, options: ort.SessionOptions, **wishes: object) -> None:
        wished.update(wishes)
        raise RuntimeError("CUDA failure 2: out of memory\nat some line")

    monkeypatch.setattr(cuda, "require", lambda: None)
    monkeypatch.setattr(cuda, "_share_memory", lambda memory_bytes: None)
    monkeypatch.setattr(ort, "InferenceSession", refuse)
    with pytest.raises(InvalidBundle):
        cuda.open_session(TAKE, session_options(1), 2**30)
    assert wished["enable_fallback"] == 0
    ((name, options),) = wished["providers"]
    assert (name, options["gpu_mem_limit"]) == ("CUDAExecutionProvider", str(2**30))


def test_nodes_on_the_cpu_are_refused_and_then_allowed_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session, asked = ort.InferenceSession, []

    def open_(model: Path, options: ort.SessionOptions, **_: object) -> ort.InferenceSession:
        asked.append(options.get_session_config_entry("session.disable_cpu_ep_fallback"))
        if asked[-1] == "1":
            raise RuntimeError(
                "This session contains graph nodes that are assigned to the default CPU EP, but "
                "fallback to CPU EP has been explicitly disabled by the user."
            )
        return session(model, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(cuda, "require", lambda: None)
    monkeypatch.setattr(cuda, "_share_memory", lambda memory_bytes: None)
    monkeypatch.setattr(cuda, "PROVIDER", "CPUExecutionProvider")
    monkeypatch.setattr(ort, "InferenceSession", open_)
    options = cuda.session_options()
    assert options.intra_op_num_threads == 1
    for _ in range(2):
        cuda.open_session(TAKE, options, None)
    assert asked == ["1", "0", "0"]
    assert len(caplog.messages) == 1
    assert "take.float32.onnx: some nodes run on the CPU" in caplog.text


@pytest.mark.parametrize("standalone", [True, False])
def test_a_server_that_needs_a_gpu_does_not_start_without(
    half_bundle: Bundle, standalone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "fault", lambda: "there is no NVIDIA driver")
    config = ServerConfig(bundles=[str(half_bundle.folder)], device="cuda")
    wanted = Launch(config, "127.0.0.1", port=0)
    with pytest.raises(DeviceUnavailable):
        launch(wanted, standalone)


class Driver:
    """A fake libcuda, with the names and the out-parameters of its C interface."""

    def __init__(
        self,
        status: int = 0,
        devices: int = 1,
        version: int = 13000,
        capability: tuple[int, int] = (9, 0),
    ) -> None:
        self.status, self.devices, self.version = status, devices, version
        self.capability = capability

    def cuInit(self, flags: int) -> int:
        return self.status

    def cuDeviceGetCount(self, count: object) -> int:
        count._obj.value = self.devices  # type: ignore[attr-defined]
        return 0

    def cuDeviceGetAttribute(self, value: object, attribute: int, device: int) -> int:
        value._obj.value = self.capability[attribute - 75]  # type: ignore[attr-defined]
        return 0

    def cuDriverGetVersion(self, version: object) -> int:
        version._obj.value = self.version  # type: ignore[attr-defined]
        return 0


HEALTHY = Driver()


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str | None]:
    """Look for CUDA with fakes; what is not given is in order."""

    def look_(
        driver: Driver | None = HEALTHY, libraries: str = "", wheel: str = cuda.PROVIDER
    ) -> str | None:
        def load(name: str) -> Driver:
            if driver is None:
                raise OSError(name)
            return driver

        monkeypatch.setattr(ctypes, "CDLL", load)
        monkeypatch.setattr(ort, "preload_dlls", lambda: print(libraries))
        monkeypatch.setattr(ort, "get_available_providers", lambda: [wheel])
        monkeypatch.setattr(cuda, "_bindings_fault", lambda: None)
        return cuda.fault.__wrapped__()

    return look_


def test_a_machine_in_order_has_no_fault(
    look: Callable[..., str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert look(libraries="Skip loading CUDA and cuDNN DLLs since torch is imported.") is None
    assert capsys.readouterr().out == ""


def test_attention_never_uses_cudnn_which_plans_for_every_length() -> None:
    cudnn = 8
    assert not int(cuda.provider_options(None)["sdpa_kernel"]) & cudnn


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        ({"wheel": "CPUExecutionProvider"}, "install onnxruntime-gpu"),
        ({"driver": None}, r"no NVIDIA driver \(libcuda.so.1\)"),
        ({"driver": Driver(status=999)}, "cuInit gives 999"),
        ({"driver": Driver(devices=0)}, "no CUDA device .CUDA_VISIBLE_DEVICES is "),
        ({"driver": Driver(version=12040)}, r"supports CUDA 12.*needs CUDA 13: update the driver"),
        ({"driver": Driver(capability=(7, 0))}, r"compute capability 7\.0.* from 7\.5, 8\.0"),
        ({"driver": Driver(capability=(10, 0))}, r"compute capability 10\.0"),
        (
            {"libraries": "Failed to load libcublas.so.13: no such file\nPlease follow https://"},
            r"^libcublas.so.13: no such file: install CUDA 13.* or pip install",
        ),
    ],
)
def test_the_fault_is_named(
    look: Callable[..., str | None], machine: dict[str, object], message: str
) -> None:
    reason = look(**machine)
    assert reason is not None
    assert re.search(message, reason)


def test_the_provider_agrees_with_the_check_on_this_machine() -> None:
    if cuda.fault() is None:
        assert cuda.open_session(TAKE, session_options(1), None).get_providers()[0] == cuda.PROVIDER
    else:
        with pytest.raises(DeviceUnavailable):
            cuda.open_session(TAKE, session_options(1), None)
