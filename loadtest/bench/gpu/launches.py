"""What one segment launches on a GPU, counted by CUDA itself through torch's profiler.

`python -m loadtest.bench.gpu.launches BUNDLE` writes it as JSON, one object for each shape.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.bench.errors import BenchFailed
from loadtest.bench.gpu.child import absent, run_child
from loadtest.bench.gpu.device_variant import DeviceVariant, Place, load, variants
from loadtest.bench.gpu.plan import NEEDS_CUDA, Figures
from loadtest.bench.gpu.subject import Subject
from loadtest.bench.inputs import Shape, random_inputs
from serve.bundle.loader import load_bundle

_STEPS = 10
_KERNELS = 12  # of the most frequent ones, by name


def measure_launches(subject: Subject, figures: Figures, seconds: float) -> None:
    """Count kernels, copies and the GPU's busy time of a step between two exits."""
    if not subject.on_cuda:
        figures.skip("launches", NEEDS_CUDA)
    elif missing := absent("torch"):
        figures.skip("launches", f"not installed: {missing}")
    else:
        folder = str(subject.variant.bundle.folder)
        try:
            for line in run_child(__name__, [folder], max(seconds, 30.0)):
                figures.add(line.pop("shape"), line)
        except BenchFailed as error:
            figures.skip("launches", str(error))


def main(folder: str) -> None:
    """Write the figures of a small and of a large shape."""
    bundle = load_bundle(Path(folder))
    variant = load(bundle, variants(bundle)[0], Place("cuda"))
    for shape in (variant.shapes[1], variant.shapes[-1]):
        print(json.dumps(_counted(variant, shape)), flush=True)


def _counted(variant: DeviceVariant, shape: Shape) -> dict[str, Any]:
    """Return means of some steps from one exit to the next with all rows."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.init()  # otherwise its profiler does not see the device

    chain, inputs = variant.chain, random_inputs(shape, variant.vocabulary)
    middle, keep = len(chain) // 2, np.arange(shape.rows)
    hidden = chain.start(*inputs, middle - 1).hidden
    chain.advance(middle, hidden, keep, inputs.attention_mask)
    with profile(activities=[ProfilerActivity.CUDA]) as traced:
        for _ in range(_STEPS):
            # Another mask, though equal: otherwise nothing would be uploaded.
            chain.advance(middle, hidden, keep, inputs.attention_mask.copy())
    numbers: Counter[str] = Counter()
    busy_us = 0.0
    for event in traced.key_averages():
        if event.self_device_time_total:  # what runs on the GPU, not the calls of the host
            numbers[event.key] += event.count
            busy_us += event.self_device_time_total
    copies = sum(n for name, n in numbers.items() if name.startswith("Memcpy"))
    return {
        "shape": str(shape),
        "kernels": (numbers.total() - copies) / _STEPS,
        "copies": copies / _STEPS,
        "busy_us": busy_us / _STEPS,
        "names": {name[:60]: n / _STEPS for name, n in numbers.most_common(_KERNELS)},
    }


if __name__ == "__main__":
    main(sys.argv[1])
