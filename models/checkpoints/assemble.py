"""From a checkpoint taken apart to a model."""

from collections.abc import Mapping

from torch import Tensor, nn

from models.checkpoints.errors import UnusableCheckpoint
from models.checkpoints.found import Reading
from models.encoders.families import build_encoder
from models.multi_exit import MultiExitModel


def assemble(reading: Reading) -> MultiExitModel:
    """Return the model, in evaluation mode.

    Raises:
        UnusableCheckpoint: weights are missing or have another shape than the config says.
    """
    try:
        model = MultiExitModel(build_encoder(reading.config), reading.found.exits)
    except ValueError as error:
        raise UnusableCheckpoint(str(error)) from error
    _fill(model.encoder, reading.encoder, "the encoder")
    for layer, head, weights in zip(model.exits, model.heads, reading.heads, strict=True):
        _fill(head, weights, f"the head of exit {layer}")
    return model.eval()


def _fill(module: nn.Module, weights: Mapping[str, Tensor], place: str) -> None:
    own = module.state_dict()
    missing = sorted(own.keys() - weights.keys())
    if missing:
        raise UnusableCheckpoint(f"{place}: {missing[0]} is missing ({len(missing)} in all)")
    for name, value in own.items():
        if weights[name].shape != value.shape:
            raise UnusableCheckpoint(
                f"{place}: {name} has shape {list(weights[name].shape)}, but config.json asks for "
                f"{list(value.shape)}"
            )
    module.load_state_dict({name: weights[name] for name in own})
