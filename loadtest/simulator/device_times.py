"""What a check on a real device writes and the simulator reads: times per shape of batch, as JSON.

The file is `DeviceTimes` as an object, or has it under the key `device_times` beside other things:

    {"device_times": {"device": "NVIDIA H100", "layers": 12, "shapes": [
        {"rows": 1, "tokens": 32, "whole_ms": 0.7, "segment_ms": 0.11, "head_ms": 0.03,
         "host_us": 80}, ...]}}

Two shapes are enough; more, up to the largest batch that is served, show where launches end.
"""

from pydantic import BaseModel, NonNegativeFloat, PositiveFloat, PositiveInt, field_validator


class ShapeTimes(BaseModel):
    """One shape of batch, each time a median of runs that came after a first one.

    Attributes:
        rows: of the batch.
        tokens: of each row, padding included.
        whole_ms: the same model as one graph with one head, without the host's time below.
        segment_ms: one layer in the middle without its head, launches included.
        head_ms: the head of one exit.
        host_us: the host's time per run in which the device waits: inputs, the round trip for the
            logits, judging, choosing.
    """

    rows: PositiveInt
    tokens: PositiveInt
    whole_ms: PositiveFloat
    segment_ms: PositiveFloat
    head_ms: NonNegativeFloat
    host_us: NonNegativeFloat


class DeviceTimes(BaseModel):
    """A device, one model on it, and its times.

    Attributes:
        device: its name.
        layers: of the model; an exit after each.
        shapes: of different sizes.
    """

    device: str
    layers: PositiveInt
    shapes: list[ShapeTimes]

    @field_validator("shapes")
    @classmethod
    def _differ(cls, shapes: list[ShapeTimes]) -> list[ShapeTimes]:
        if len({shape.rows * shape.tokens for shape in shapes}) < 2:
            raise ValueError("expected batches of two sizes or more")
        return shapes
