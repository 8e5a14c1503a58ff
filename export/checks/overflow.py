"""Whether fp16 can hold a model's activations, which no run on a CPU tells.

ONNX Runtime's CPU provider computes fp16 graphs in fp32, so values beyond fp16 pass its checks and
become infinite on a GPU.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from export.checks.samples import Batch
from models.multi_exit import MultiExitModel

LARGEST = float(np.finfo(np.float16).max)
# A third of it: other texts than the samples may reach further.
DOUBTFUL = 20_000.0


class Peak(NamedTuple):
    """The largest absolute value that any module gave.

    Attributes:
        value: infinite or NaN if any value is.
        module: its name in the encoder, which says the layer.
    """

    value: float
    module: str


def find_peak(model: MultiExitModel, batches: Iterable[Batch]) -> Peak:
    """Run the fp32 model on batches, and return the encoder's largest activation.

    Padding counts too, because it is computed too. Attention scores are left out: its kernels keep
    them in fp32.
    """
    with torch.no_grad(), _watching(model.encoder) as peaks:
        for batch in batches:
            model(*map(torch.from_numpy, batch))
    # NaN is no number that can be compared, and counts as the largest.
    return max(peaks, key=lambda peak: np.nan_to_num(peak.value, nan=np.inf))


@contextmanager
def _watching(encoder: nn.Module) -> Iterator[list[Peak]]:
    """Collect the peak of every module at every call."""
    peaks = [Peak(0.0, "the encoder")]

    def watch(name: str, given: object) -> None:
        if isinstance(given, Tensor) and given.is_floating_point() and given.numel():
            peaks.append(Peak(float(given.abs().max()), name))

    hooks = [
        module.register_forward_hook(lambda _module, _args, given, name=name: watch(name, given))
        for name, module in encoder.named_modules()
    ]
    try:
        yield peaks
    finally:
        for hook in hooks:
            hook.remove()


def warning(peak: Peak) -> str | None:
    """Return what to tell about the fp16 variant, or None if its values are far from the bound."""
    if peak.value <= DOUBTFUL:  # NaN is not
        return None
    found = f"fp16: {peak.module} gives values up to {peak.value:,.0f}"
    if not peak.value <= LARGEST:
        return f"{found}; fp16 ends at {LARGEST:,.0f} and will overflow: serve fp32 on CPUs instead"
    return f"{found}; fp16 ends at {LARGEST:,.0f}, and other texts may reach it"
