"""Building a model from a parsed checkpoint."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from models.checkpoints.parsed import ParsedCheckpoint
from models.encoders.families import build_encoder
from models.encoders.meta import check_shapes, culprit, without_memory
from models.errors import UnusableCheckpoint, in_one_line
from models.multi_exit import MultiExitModel


def build_model(parsed: ParsedCheckpoint) -> MultiExitModel:
    """Return the model, in evaluation mode.

    Memory is taken only if the weights have the shapes that the config says.

    Raises:
        UnusableCheckpoint: weights are missing or have another shape than the config says, or its
            settings do not fit each other, so that no text can be computed.
    """
    for part, module, weights in _parts(
        without_memory(lambda: _make(parsed), parsed.config), parsed
    ):
        check_shapes(module, {name: each.shape for name, each in weights.items()}, part)
    model = _make(parsed)
    for _, module, weights in _parts(model, parsed):
        module.load_state_dict({name: weights[name] for name in module.state_dict()})
    token = torch.zeros(1, 1, dtype=torch.int64)
    try:
        with torch.inference_mode():
            model.eval()(token, torch.ones_like(token), token)
    except Exception as error:  # PyTorch and transformers raise no narrower type
        raise UnusableCheckpoint(
            f"config.json: settings do not fit each other, and the {parsed.info.family} model "
            f"computes no text: {in_one_line(error)}{culprit(parsed.config)}"
        ) from error
    return model


def _make(parsed: ParsedCheckpoint) -> MultiExitModel:
    return MultiExitModel(build_encoder(parsed.config), parsed.info.exits)


def _parts(
    model: MultiExitModel, parsed: ParsedCheckpoint
) -> Iterator[tuple[str, nn.Module, Mapping[str, Tensor]]]:
    """Yield name, module and weights of the encoder and of every head."""
    yield "the encoder", model.encoder, parsed.encoder
    for layer, head, weights in zip(model.exits, model.heads, parsed.heads, strict=True):
        yield f"the head of exit {layer}", head, weights
