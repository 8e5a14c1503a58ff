"""Attention of one segment with every kernel and every form of mask that ONNX Runtime has."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from loadtest.bench.gpu.bound_graph import BoundGraph
from loadtest.bench.gpu.child import absent
from loadtest.bench.gpu.device_variant import DeviceVariant
from loadtest.bench.gpu.medians import median_of
from loadtest.bench.gpu.plan import NEEDS_CUDA, Figures, reason_of
from loadtest.bench.gpu.subject import Subject
from loadtest.bench.inputs import Shape
from serve.bundle.manifest import ATTENTION_LENGTHS, HIDDEN_OUT
from serve.runtime import cuda_provider as cuda
from serve.runtime.step_inputs import attention_lengths

# ONNX Runtime's values for `sdpa_kernel`: its own choice, flash, memory-efficient, TensorRT's fused
# one, cuDNN's, plain products, and what the server allows.
KERNELS = (0, 1, 2, 4, 8, 16, cuda.ATTENTION_KERNELS)
_NAMES = "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO"
_KERNEL = "SdpaKernel="
_STARTS = "3 x rows + 2"  # see `serve.runtime.step_inputs.attention_lengths`


def measure_attention(subject: Subject, figures: Figures, seconds: float) -> None:
    """Time the layers of one segment with each kernel and each form of mask."""
    variant = subject.variant
    forms = ["lengths"]
    if subject.on_cuda:
        forms.append(_STARTS)
    else:
        figures.skip(f"mask {_STARTS}", NEEDS_CUDA)
        figures.skip("attention kernels", NEEDS_CUDA)
    path = variant.bundle.segment_paths(variant.precision)[len(variant.chain) // 2]
    graphs = dict.fromkeys(forms, path)
    if missing := absent("onnx"):
        figures.skip("no mask", f"not installed: {missing}, to take the mask out of the graph")
    else:
        graphs["none"] = _without_mask(path, subject.folder)
    kernels = KERNELS if subject.on_cuda else (cuda.ATTENTION_KERNELS,)
    shapes = dict.fromkeys([variant.shapes[1], *variant.shapes[-2:]])
    each_s = seconds / len(kernels) / len(graphs) / len(shapes) / 2
    usual: dict[Shape, NDArray[Any]] = {}
    for kernel in reversed(kernels):
        placed = replace(variant, place=replace(variant.place, attention_kernels=kernel))
        if subject.on_cuda:
            figures.row("kernels", sdpa_kernel=kernel, names=_names(placed, shapes))
        for form, graph in graphs.items():
            try:
                session = placed.place.opener()(graph)
                case = {"sdpa_kernel": kernel, "mask": form}
                for shape in shapes:
                    line = _timed(placed, session, form, shape, each_s)
                    hidden = line.pop("hidden")
                    error = float(np.abs(hidden - usual.setdefault(shape, hidden)).max())
                    figures.row("ms", **case, **line, differs_by=error)
            except Exception as error:  # a kernel that is not for this GPU or this mask
                figures.skip(f"sdpa_kernel {kernel}, mask {form}", reason_of(error))


def _timed(
    variant: DeviceVariant, session: ort.InferenceSession, form: str, shape: Shape, seconds: float
) -> dict[str, Any]:
    lengths = np.full(shape.rows, shape.tokens, np.int32)
    device = variant.place.device if form == _STARTS else "cpu"
    given = {ATTENTION_LENGTHS: attention_lengths(lengths, shape.tokens, device)}
    graph = BoundGraph(session, variant, shape, given)
    ms = 1e3 * median_of(graph.average_s, seconds)
    hidden = graph.outputs[HIDDEN_OUT].numpy().astype(np.float32)
    return {"rows": shape.rows, "tokens": shape.tokens, "ms": ms, "hidden": hidden}


def _names(variant: DeviceVariant, shapes: Iterable[Shape]) -> list[str]:
    try:
        return [name for shape in shapes for name in kernel_names(variant, shape)]
    except Exception as error:  # a kernel that is not for this GPU
        return [reason_of(error)]


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


def _without_mask(path: Path, folder: Path) -> Path:
    """Write a segment's layers without the mask of attention: all tokens count as real."""
    import onnx

    model = onnx.load(path)
    for node in model.graph.node:
        node.input[:] = ["" if name == ATTENTION_LENGTHS else name for name in node.input]
    inputs = [value for value in model.graph.input if value.name != ATTENTION_LENGTHS]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    written = folder / f"no-mask-{path.name}"
    onnx.save_model(model, written, save_as_external_data=True, location=f"{written.stem}.weights")
    return written
