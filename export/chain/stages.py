"""A multi-exit model as the exporter traces it: one module per segment."""

from dataclasses import dataclass

from torch import Tensor, nn

from export.errors import ExportFailed
from models.heads import HeadOutput
from models.multi_exit import MultiExitModel

Results = tuple[Tensor, ...]  # as `export.checks.contract.segment_outputs` lists them


@dataclass(frozen=True)
class Span:
    """The layers of one segment, counted from 0, `stop` excluded, and which head ends it."""

    start: int
    stop: int
    head: int

    @property
    def exit_layer(self) -> int:
        """Transformer layers executed once the segment has run."""
        return self.stop


def spans(exits: tuple[int, ...], wanted: tuple[int, ...] | None = None) -> tuple[Span, ...]:
    """Return one span per wanted exit; layers between two of them belong to the later one.

    Args:
        exits: the model's exit layers, ascending; the last is its depth.
        wanted: those to export; None for all.

    Raises:
        ExportFailed: a wanted exit does not exist, or the last exit is not wanted.
    """
    chosen = sorted(set(wanted or exits))
    listed = ", ".join(map(str, exits))
    missing = [layer for layer in chosen if layer not in exits]
    if missing:
        raise ExportFailed(f"no exit after layer {missing[0]}: the model has exits at {listed}")
    if chosen[-1] != exits[-1]:
        whole = ",".join(map(str, [*chosen, exits[-1]]))
        raise ExportFailed(
            f"the last layer, {exits[-1]}, must be among the exits, for it answers what no other "
            f"exit is sure of: use {whole}"
        )
    starts = [0, *chosen[:-1]]
    return tuple(
        Span(start, stop, exits.index(stop)) for start, stop in zip(starts, chosen, strict=True)
    )


def given(said: HeadOutput) -> Results:
    """Return the head's outputs as those of a graph; outputs it has not learned are left out."""
    return tuple(tensor for tensor in said if tensor is not None)


class Stage(nn.Module):
    """The layers of one span and its exit head."""

    def __init__(self, model: MultiExitModel, span: Span) -> None:
        super().__init__()
        self.model = model
        self.span = span

    def finish(self, hidden: Tensor, attention_mask: Tensor) -> Results:
        """Return hidden states (rows, tokens, width) and the head's outputs."""
        hidden = self.model.run_layers(hidden, attention_mask, self.span.start, self.span.stop)
        read = self.model.backbone.head_input(hidden)
        return hidden, *given(self.model.head(self.span.head).output(read, attention_mask))


class FirstStage(Stage):
    """Embeddings, layers, head."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Results:
        """Run the stage; every input is (rows, tokens)."""
        hidden = self.model.backbone.embed(input_ids, token_type_ids, attention_mask)
        return self.finish(hidden, attention_mask)


class LaterStage(Stage):
    """Layers and head. `export.graph.compaction` puts the choice of rows before the graph."""

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> Results:
        """Run the stage on (rows, tokens, width) hidden states."""
        return self.finish(hidden, attention_mask)
