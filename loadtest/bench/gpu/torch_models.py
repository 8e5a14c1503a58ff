"""A BERT of the bundle's size in PyTorch; its weights are random, its times are not.

`python -m loadtest.bench.gpu.torch_models JSON` writes the time of each shape, see `Sizes`.
"""

import json
import sys
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from loadtest.bench.gpu.medians import median_s
from loadtest.bench.inputs import Inputs, Shape, random_inputs

PACKAGES = ("torch", "transformers")
_HEAD_WIDTH = 64


@dataclass(frozen=True)
class Sizes:
    """What is measured."""

    device: str  # `cuda` for fp16, `cpu` for fp32
    width: int  # of hidden states; the inner layer is four times as wide
    layers: int
    vocabulary: int  # word pieces
    labels: int  # of the head
    shapes: list[Shape]  # of the batches
    compiled: list[Shape]  # those for which torch.compile is tried; each may take half a minute
    seconds: float  # for each figure


def arguments(sizes: Sizes) -> list[str]:
    """Return the command line."""
    return [json.dumps(asdict(sizes))]


def main(text: str) -> None:
    """Write one JSON object for each figure, the slow ones last."""
    fields = json.loads(text)
    for name in ("shapes", "compiled"):
        fields[name] = [Shape(*shape) for shape in fields[name]]
    sizes = Sizes(**fields)
    import torch

    torch.manual_seed(0)
    kind = torch.float16 if sizes.device == "cuda" else torch.float32
    model = _model(sizes).to(device=sizes.device, dtype=kind)
    # On a CPU the model is only traced: a compiler may be missing, and is not what is tried.
    how: Any = {"mode": "reduce-overhead"} if sizes.device == "cuda" else {"backend": "eager"}
    compiled = torch.compile(model, **how)
    for name, runs, shapes in (
        ("torch", model, sizes.shapes),
        ("torch_compiled", compiled, sizes.compiled),
    ):
        for shape in shapes:
            run = partial(_run, torch, runs, sizes.device, random_inputs(shape, sizes.vocabulary))
            line = {"contender": name, "rows": shape.rows, "tokens": shape.tokens}
            print(json.dumps(line | {"ms": 1e3 * median_s(run, sizes.seconds)}), flush=True)


def _model(sizes: Sizes) -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=max(1, sizes.width // _HEAD_WIDTH),
        intermediate_size=4 * sizes.width,
        num_labels=sizes.labels,
        attn_implementation="sdpa",  # type: ignore[call-arg]  # a setting of the base class
    )
    return BertForSequenceClassification(config).eval()


def _run(torch: Any, model: Any, device: str, inputs: Inputs) -> Any:
    """Return (rows, labels) logits on the host."""
    ids = torch.from_numpy(np.ascontiguousarray(inputs.input_ids)).to(device)
    with torch.inference_mode():
        return model(input_ids=ids).logits.float().cpu().numpy()


if __name__ == "__main__":
    main(sys.argv[1])
