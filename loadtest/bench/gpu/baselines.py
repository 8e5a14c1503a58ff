"""The whole model by other means, text in and logits out: what leaving early has to beat."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import onnxruntime as ort

from loadtest.bench.errors import BenchFailed
from loadtest.bench.gpu import torch_models
from loadtest.bench.gpu.bound_graph import BoundGraph
from loadtest.bench.gpu.child import absent, run_child
from loadtest.bench.gpu.device_variant import Place
from loadtest.bench.gpu.medians import median_s
from loadtest.bench.gpu.plan import NEEDS_CUDA, Figures
from loadtest.bench.gpu.shapes import whole_model
from loadtest.bench.gpu.subject import NO_ONE_GRAPH, Subject
from loadtest.bench.inputs import Inputs, Shape, random_inputs
from serve.runtime import cuda_provider as cuda
from serve.runtime.ort_session import OpenSession

Contender = Callable[[Inputs], Any]
# The legacy stream cannot be captured: these sessions have a stream of their own.
_OF_THE_STREAM = ("user_compute_stream", "do_copy_in_default_stream")


def measure_baselines(subject: Subject, figures: Figures, seconds: float) -> None:
    """Time the whole model as one graph, captured, and in torch, for every shape."""
    each_s = seconds / 8 / len(subject.variant.shapes)
    one_graph = whole_model(subject)
    if one_graph is None:
        figures.skip("one_graph", NO_ONE_GRAPH)
    else:
        _time(subject, figures, "one_graph", lambda shape: one_graph.run, each_s)
    if not subject.on_cuda:
        figures.skip("cuda_graph", NEEDS_CUDA)
    elif subject.one_graph:
        captured = capturing(subject.variant.place)(subject.one_graph)
        _time(subject, figures, "cuda_graph", partial(_captured, subject, captured), each_s)
    if missing := absent(*torch_models.PACKAGES):
        figures.skip("torch, torch_compiled", f"not installed: {missing}")
    else:
        _time_torch(subject, figures, seconds, each_s)


def _time(
    subject: Subject,
    figures: Figures,
    name: str,
    make: Callable[[Shape], Contender],
    seconds: float,
) -> None:
    for shape in subject.variant.shapes:
        inputs = random_inputs(shape, subject.variant.vocabulary)
        ms = 1e3 * median_s(partial(make(shape), inputs), seconds)
        figures.row("ms", contender=name, rows=shape.rows, tokens=shape.tokens, ms=ms)


def _time_torch(subject: Subject, figures: Figures, seconds: float, each_s: float) -> None:
    """Time torch in a process of its own; what it cannot do is skipped with its reason."""
    variant, manifest = subject.variant, subject.variant.bundle.manifest
    shapes = variant.shapes
    sizes = torch_models.Sizes(
        device=variant.place.device,
        width=manifest.width,
        layers=manifest.num_layers,
        vocabulary=variant.vocabulary,
        labels=len(manifest.labels),
        shapes=shapes,
        compiled=list(dict.fromkeys([shapes[1], *shapes[-2:]])),
        seconds=each_s,
    )
    # Importing torch takes an idle CPU ten seconds, a busy one a minute.
    limit_s = max(0.7 * seconds, 120.0)
    try:
        arguments = torch_models.arguments(sizes)
        for line in run_child(torch_models.__name__, arguments, limit_s):
            figures.row("ms", **line)
    except BenchFailed as error:
        figures.skip("the rest of torch and torch_compiled", str(error))


def _captured(subject: Subject, session: ort.InferenceSession, shape: Shape) -> Contender:
    graph = BoundGraph(session, subject.variant, shape)
    return partial(graph.answer, options=replay_of(shape))


def capturing(place: Place) -> OpenSession:
    """Return a function that opens an ONNX file for capture on CUDA; `place` names kernels."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    provider = cuda.provider_options(None, place.attention_kernels)
    provider = {name: value for name, value in provider.items() if name not in _OF_THE_STREAM}
    return partial(_open, options=options, provider=provider | {"enable_cuda_graph": "1"})


def _open(
    path: Path, options: ort.SessionOptions, provider: dict[str, str]
) -> ort.InferenceSession:
    providers = [(cuda.PROVIDER, provider)]
    return ort.InferenceSession(path, options, providers=providers, enable_fallback=0)


def replay_of(shape: Shape) -> ort.RunOptions:
    """Return options under which a shape's first run is captured and later ones replay it."""
    options = ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(1000 * shape.rows + shape.tokens))
    return options
