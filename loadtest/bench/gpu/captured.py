"""Groups of segments as captured CUDA graphs: are replays right, and what do they take."""

from time import perf_counter
from typing import Any

import numpy as np

from loadtest.bench.chain import each_segment
from loadtest.bench.gpu.bound_graph import BoundGraph
from loadtest.bench.gpu.checks import TOLERANCE
from loadtest.bench.gpu.child import absent
from loadtest.bench.gpu.device_variant import DeviceVariant, spread
from loadtest.bench.gpu.graph_capture import capturing, replay_of
from loadtest.bench.gpu.medians import medians
from loadtest.bench.gpu.plan import NEEDS_CUDA, Figures
from loadtest.bench.gpu.subject import Subject
from loadtest.bench.gpu.throughput import FEW
from loadtest.bench.inputs import Inputs, Shape, random_texts
from serve.bundle.manifest import HIDDEN, HIDDEN_OUT, LOGITS
from serve.runtime.cpu_runner import runs_between

REPLAYS = 200
_FEW_REPLAYS = 4  # where nothing is captured


def measure_captured(subject: Subject, figures: Figures, seconds: float) -> None:
    """Replay two shapes in turns, compare with runs that are not captured, and time each shape."""
    if missing := absent("onnx"):
        figures.skip("captured graphs", f"not installed: {missing}, to write groups of segments")
        return
    if not subject.on_cuda:
        figures.skip("capture", f"{NEEDS_CUDA}; the groups run without")
    variant = subject.variant
    active = spread(len(variant.chain), min(FEW, len(variant.chain)))
    paths = [subject.group(run) for run in runs_between(active)]
    for shared in (False, True):
        opener = variant.place.opener()
        if subject.on_cuda:
            opener = capturing(variant.place, shared)
        sessions = [opener(path) for path in paths]
        groups = {shape: Groups(variant, sessions, shape) for shape in variant.shapes[1:3]}
        line = _replays(variant, groups, active, REPLAYS if subject.on_cuda else _FEW_REPLAYS)
        figures.row("replays", shared_arena=shared, **line)
        # A shared arena is known to go wrong; it is replayed to see whether it does here.
        if shared:
            return
        if line["wrong"]:
            figures.problem(
                f"captured graphs: {line['wrong']} of {line['replays']} replays are wrong"
            )
        each_s = seconds / len(variant.shapes) / 2
        layers = [variant.bundle.manifest.exit_layers[index] for index in active]
        name = "ms" if subject.on_cuda else "uncaptured_ms"
        for shape in variant.shapes:
            group = groups.get(shape) or Groups(variant, sessions, shape)
            [until_s] = medians([group.until_s], each_s)
            until_ms = [1e3 * each for each in until_s]
            case = {"rows": shape.rows, "tokens": shape.tokens}
            figures.row(name, **case, active=layers, until_ms=until_ms)


class Groups:
    """The groups between active exits for one shape: each reads what the one before has left."""

    def __init__(self, variant: DeviceVariant, sessions: list[Any], shape: Shape) -> None:
        self._options = replay_of(shape)
        self._graphs: list[BoundGraph] = []
        given: dict[str, Any] = {}
        for session in sessions:
            self._graphs.append(BoundGraph(session, variant, shape, given))
            given = {HIDDEN: self._graphs[-1].outputs.get(HIDDEN_OUT)}
        texts = random_texts([shape.tokens] * shape.rows, variant.vocabulary)
        self._some = full_inputs(texts)

    def logits(self, inputs: Inputs) -> list[Any]:
        """Return each exit's logits."""
        found = [self._graphs[0].answer(inputs, self._options)]
        for graph in self._graphs[1:]:
            graph.run(self._options)
            found.append(graph.outputs[LOGITS].numpy())
        return found

    def until_s(self) -> list[float]:
        """Return the seconds from texts on the host until each exit's logits are there."""
        began = perf_counter()
        self._graphs[0].answer(self._some, self._options)
        times_s = [perf_counter() - began]
        for graph in self._graphs[1:]:
            graph.run(self._options)
            graph.outputs[LOGITS].numpy()
            times_s.append(perf_counter() - began)
        return times_s


def full_inputs(texts: list[Any]) -> Inputs:
    """Return texts of one length as a batch."""
    ids = np.stack(texts)
    return Inputs(ids, np.ones_like(ids), np.zeros_like(ids))


def _replays(
    variant: DeviceVariant, groups: dict[Shape, Groups], active: tuple[int, ...], num: int
) -> dict[str, Any]:
    """Alternate between the shapes with new texts each time."""
    runner = variant.chain.presenting(active)
    wrong, worst = 0, 0.0
    for turn in range(num):
        shape = list(groups)[turn % len(groups)]
        inputs = full_inputs(
            random_texts([shape.tokens] * shape.rows, variant.vocabulary, seed=turn)
        )
        found = groups[shape].logits(inputs)
        wanted = [step.logits for step in each_segment(runner, inputs)]
        error = max(float(np.abs(f - w).max()) for f, w in zip(found, wanted, strict=True))
        wrong += not error <= TOLERANCE[variant.precision]
        worst = max(worst, error)
    return {"replays": num, "wrong": wrong, "max_error": worst}
