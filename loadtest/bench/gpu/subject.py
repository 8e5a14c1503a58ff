"""What every step of the plan measures: a variant, its reference, and the whole model."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from loadtest.bench.gpu.child import absent
from loadtest.bench.gpu.device_variant import DeviceVariant
from serve.bundle.loader import Bundle
from serve.runtime.cpu_runner import CpuRunner


@dataclass(frozen=True)
class Subject:
    """What is measured.

    Attributes:
        variant: on the device.
        expected: the reference on the CPU provider.
        one_graph: file of the whole model as one graph; None if there is none.
    """

    variant: DeviceVariant
    expected: CpuRunner
    one_graph: Path | None

    @property
    def on_cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.variant.place.device == "cuda"


NO_ONE_GRAPH = (
    "not installed: onnx and onnx-ir, to write the whole model as one graph; bring a folder from "
    "`python -m loadtest.bench.one_graph` and name it by --one-graph"
)


@contextmanager
def subject_of(
    variant: DeviceVariant, expected: CpuRunner, one_graphs: Path | None
) -> Iterator[Subject]:
    """Lend a subject whose files are removed afterwards.

    Args:
        variant: on the device.
        expected: the reference.
        one_graphs: folder from `loadtest.bench.one_graph`; None to write the graph, with `onnx`.
    """
    with TemporaryDirectory() as folder:
        path = _one_graph(variant.bundle, variant, one_graphs, Path(folder))
        yield Subject(variant, expected, path)


def _one_graph(
    bundle: Bundle, variant: DeviceVariant, one_graphs: Path | None, folder: Path
) -> Path | None:
    if one_graphs:
        path = one_graphs / variant.precision / "one_graph.onnx"
        return path if path.is_file() else None
    if absent("onnx", "onnx_ir"):
        return None
    from loadtest.bench.one_graph import write_one_graph

    return write_one_graph(bundle, variant.precision, folder)
