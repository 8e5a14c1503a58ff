"""Choosing a device, with a GPU and without one."""

import ctypes
import importlib.util
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnxruntime as ort
import pytest
from pydantic import ValidationError

from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.config import ServerConfig
from serve.errors import DeviceUnavailable, InvalidBundle, InvalidRequest
from serve.launch import Launch, launch
from serve.runtime import cuda_provider as cuda
from serve.runtime import placement as placements
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.cuda_memory import MOST_BYTES
from serve.runtime.cuda_runner import CudaRunner
from serve.runtime.device_memory import HostMemory
from serve.runtime.hardware import choose_precision
from serve.runtime.ort_session import session_options
from serve.runtime.placement import Placement, build_runner, place, share_gpus
from serve.runtime.row_taker import GRAPHS

TAKE = GRAPHS / "take.float32.onnx"


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "fault", lambda: None)


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "fault", lambda: "there is no NVIDIA driver")


def only(bundle: Bundle, *precisions: Precision) -> Bundle:
    variants = {p: bundle.manifest.variants[p] for p in precisions}
    return replace(bundle, manifest=bundle.manifest.model_copy(update={"variants": variants}))


@pytest.mark.usefixtures("with_gpu")
def test_auto_is_fp16_on_the_gpu(half_bundle: Bundle) -> None:
    assert place(half_bundle, "auto", "auto") == ("cuda", "fp16")
    assert place(half_bundle, "cuda", "auto") == ("cuda", "fp16")


@pytest.mark.parametrize(
    ("num_replicas", "share", "message"),
    [
        (5, None, "5 replicas with 1 of a GPU each: this host has 4, for 4 replicas; start fewer"),
        (13, 0.3, "13 replicas with 0.3 of a GPU each: this host has 4, for 12 replicas"),
    ],
)
def test_more_replicas_than_the_gpus_have_room_for_are_refused(
    monkeypatch: pytest.MonkeyPatch, num_replicas: int, share: float | None, message: str
) -> None:
    monkeypatch.setattr(cuda, "num_devices", lambda: 4)
    on_gpu = [Placement("cpu", "int8"), Placement("cuda", "fp16")]
    with pytest.raises(InvalidRequest, match=message):
        share_gpus(on_gpu, num_replicas, share)
    assert share_gpus(on_gpu, num_replicas - 1, share) == (share or 1)
    assert share_gpus(on_gpu[:1], num_replicas, None) == 0


@pytest.mark.usefixtures("with_gpu")
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_variants_for_cpus_stay_on_the_cpu(bundle: Bundle, precision: Precision) -> None:
    assert place(bundle, "auto", precision) == ("cpu", precision)
    assert place(only(bundle, precision), "auto", "auto") == ("cpu", precision)
    said = rf"has no {precision} variant that runs on CUDA.*--device"
    with pytest.raises(DeviceUnavailable, match=said):
        place(bundle, "cuda", precision)
    said = rf"has no variant that runs on CUDA; it has {precision}: .*--precision fp16"
    with pytest.raises(DeviceUnavailable, match=said):
        place(only(bundle, precision), "cuda", "auto")


@pytest.mark.usefixtures("with_gpu")
def test_a_model_of_one_layer_run_again_and_again_is_placed_as_any_other(
    shared_bundle: Bundle,
) -> None:
    assert place(shared_bundle, "auto", "auto").device == "cpu", "it has no fp16"
    assert place(shared_bundle, "cpu", "int8") == ("cpu", "int8")


@pytest.mark.usefixtures("without_gpu")
def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused(
    bundle: Bundle, half_bundle: Bundle
) -> None:
    assert place(bundle, "auto", "auto") == ("cpu", choose_precision("auto", bundle))
    assert place(half_bundle, "auto", "auto") == ("cpu", "fp32")
    with pytest.raises(DeviceUnavailable, match="no NVIDIA driver; pass --device cpu"):
        place(half_bundle, "cuda", "auto")


@pytest.mark.usefixtures("with_gpu")
def test_the_cpu_is_taken_where_it_is_asked_for(half_bundle: Bundle) -> None:
    assert place(half_bundle, "cpu", "auto") == ("cpu", "fp32")
    assert place(half_bundle, "cpu", "fp16") == ("cpu", "fp16")
    assert isinstance(build_runner(half_bundle, Placement("cpu", "fp32"), 1), CpuRunner)
    assert isinstance(build_runner(half_bundle, Placement("cpu", "fp16"), 1), CudaRunner)


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
    with pytest.raises(DeviceUnavailable, match="could not set up its CUDA provider"):
        cuda.open_session(TAKE, session_options(1), None)


def test_a_session_never_falls_back_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    wished = {}

    def refuse(model: Path, options: ort.SessionOptions, **wishes: object) -> None:
        wished.update(wishes)
        raise RuntimeError("CUDA failure 2: out of memory\nat some line")

    monkeypatch.setattr(cuda, "require", lambda: None)
    monkeypatch.setattr(cuda, "_share_memory", lambda memory_bytes: None)
    monkeypatch.setattr(ort, "InferenceSession", refuse)
    with pytest.raises(InvalidBundle, match=r"take.float32.onnx on CUDA: CUDA failure 2"):
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


def test_without_bindings_cuda_is_refused_and_the_extra_is_named() -> None:
    if importlib.util.find_spec("cuda") is None:
        assert "pip install 'offramp[gpu]'" in str(cuda._bindings_fault())


def test_sessions_share_one_arena_under_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = []

    def register(provider: str, where: object, options: object, limits: ort.OrtArenaCfg) -> None:
        registered.append((provider, limits.max_mem))

    monkeypatch.setattr(cuda, "_shared_arena", [])
    monkeypatch.setattr(ort, "create_and_register_allocator_v2", register)
    for _ in range(2):
        cuda._share_memory(2**30)
    assert registered == [(cuda.PROVIDER, 2**30)]
    with pytest.raises(DeviceUnavailable, match="another limit"):
        cuda._share_memory(None)


@pytest.mark.skipif(cuda.fault() is None, reason="there is a GPU")
def test_an_arena_that_cannot_be_had_is_an_expected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_shared_arena", [])
    with pytest.raises(DeviceUnavailable, match="CUDA Provider not available"):
        cuda._share_memory(None)


def test_the_servers_arguments_reach_the_engine() -> None:
    config = ServerConfig(bundles=["tiny"], device="cuda", gpu_memory_gb=2.5)
    options = config
    assert (options.device, options.gpu_memory_gb) == ("cuda", 2.5)
    with pytest.raises(ValidationError, match="device"):
        ServerConfig(bundles=["tiny"], device="tpu")


@pytest.mark.usefixtures("without_gpu")
@pytest.mark.parametrize("standalone", [True, False])
def test_a_server_that_needs_a_gpu_does_not_start_without(
    half_bundle: Bundle, standalone: bool
) -> None:
    config = ServerConfig(bundles=[str(half_bundle.folder)], device="cuda")
    wanted = Launch(config, "127.0.0.1", port=0)
    with pytest.raises(DeviceUnavailable, match="no NVIDIA driver"):
        launch(wanted, standalone)


class Driver:
    """A fake libcuda, with the names and the out-parameters of its C interface."""

    def __init__(self, status: int = 0, devices: int = 1, version: int = 13000) -> None:
        self.status, self.devices, self.version = status, devices, version

    def cuInit(self, flags: int) -> int:
        return self.status

    def cuDeviceGetCount(self, count: object) -> int:
        count._obj.value = self.devices  # type: ignore[attr-defined]
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


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that an import of `nvidia` would find."""
    folder = tmp_path / "nvidia"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


@pytest.mark.parametrize("library", ["libcublas.so.13", "libcudnn.so.9"])
def test_libraries_are_found_in_packages_that_lie_elsewhere_than_onnx_runtime(
    library: str, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"libcublas.so.13", "libcudnn.so.9"} - {library}

    def load(name: str) -> None:
        if Path(name).name not in known and not Path(name).is_file():
            raise OSError(f"{name}: no such file")
        known.add(Path(name).name)

    def preload() -> None:
        if "libcublas.so.13" not in known:
            print("Failed to load libcublas.so.13: no such file\nPlease follow https://")

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(ort, "preload_dlls", preload)
    assert str(cuda._library_fault()).startswith(f"{library}: no such file: install CUDA 13")
    place = packages / "some" / "lib" / library
    place.parent.mkdir(parents=True)
    place.touch()
    assert cuda._library_fault() is None


@pytest.mark.parametrize("last_first", [False, True])
def test_a_library_that_needs_another_is_found_in_whatever_order_they_lie(
    last_first: bool, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {"libcublas.so.13": "libcublasLt.so.13"}
    known = {"libcudnn.so.9"}
    for name in ("libcublas.so.13", "libcublasLt.so.13"):
        (packages / "cu13" / "lib").mkdir(parents=True, exist_ok=True)
        (packages / "cu13" / "lib" / name).touch()

    def load(name: str) -> None:
        found = Path(name).is_file() and needed.get(Path(name).name, "libcudnn.so.9") in known
        if Path(name).name not in known and not found:
            raise OSError(f"{name}: cannot be opened")
        known.add(Path(name).name)

    def preload() -> None:
        for name in ("libcublasLt.so.13", "libcublas.so.13"):
            if name not in known:
                print(f"Failed to load {name}: no such file")

    glob = Path.glob
    monkeypatch.setattr(
        Path, "glob", lambda path, pattern: sorted(glob(path, pattern), reverse=last_first)
    )
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(ort, "preload_dlls", preload)
    assert cuda._library_fault() is None


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
        with pytest.raises(DeviceUnavailable, match=r"CUDA cannot be used here: .*--device cpu"):
            cuda.open_session(TAKE, session_options(1), None)
