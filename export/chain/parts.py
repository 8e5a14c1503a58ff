"""Which graphs make up a bundle: one segment per exit, or the graphs of shared layers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import onnx_ir as ir

from export.chain import shared_layers
from export.chain.segments import build_segment
from export.chain.stages import Span
from models.multi_exit import MultiExitModel


class Part(NamedTuple):
    """One graph to write.

    Attributes:
        name: for whoever watches the export.
        stem: where it goes in each variant's folder, without `.onnx`.
        build: traces it, in fp32.
    """

    name: str
    stem: str
    build: Callable[[], ir.Model]


def parts_of(model: MultiExitModel, spans: Sequence[Span]) -> list[Part]:
    """Return the graphs of a model with exits where the spans end."""
    if not model.backbone.shared:
        return [
            Part(f"exit {s.exit_layer}", f"{s.exit_layer:02d}", partial(build_segment, model, s))
            for s in spans
        ]
    return [
        Part("embeddings", shared_layers.EMBED, partial(shared_layers.build_embeddings, model)),
        Part("layer", shared_layers.LAYER, partial(shared_layers.build_layer, model)),
        *(
            Part(
                f"exit {s.exit_layer}",
                shared_layers.head_stem(s.exit_layer),
                partial(shared_layers.build_head, model, s),
            )
            for s in spans
        ),
    ]
