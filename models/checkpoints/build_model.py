"""Building a model from a parsed checkpoint."""

from collections.abc import Mapping

from torch import Tensor, nn

from models.checkpoints.errors import UnusableCheckpoint
from models.checkpoints.parsed import ParsedCheckpoint
from models.encoders.families import build_encoder
from models.multi_exit import MultiExitModel


def build_model(parsed: ParsedCheckpoint) -> MultiExitModel:
    """Return the model, in evaluation mode.

    Raises:
        UnusableCheckpoint: weights are missing or have another shape than the config says.
    """
    try:
        model = MultiExitModel(build_encoder(parsed.config), parsed.info.exits)
    except ValueError as error:
        raise UnusableCheckpoint(str(error)) from error
    _fill(model.encoder, parsed.encoder, "the encoder")
    for layer, head, weights in zip(model.exits, model.heads, parsed.heads, strict=True):
        _fill(head, weights, f"the head of exit {layer}")
    return model.eval()


def _fill(module: nn.Module, weights: Mapping[str, Tensor], part: str) -> None:
    expected = module.state_dict()
    missing = sorted(expected.keys() - weights.keys())
    if missing:
        raise UnusableCheckpoint(f"{part}: {missing[0]} is missing ({len(missing)} in all)")
    for name, value in expected.items():
        if weights[name].shape != value.shape:
            raise UnusableCheckpoint(
                f"{part}: {name} has shape {list(weights[name].shape)}, but config.json asks for "
                f"{list(value.shape)}"
            )
    module.load_state_dict({name: weights[name] for name in expected})
