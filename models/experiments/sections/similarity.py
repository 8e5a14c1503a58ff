"""How alike the hidden states of neighbouring layers are."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cosine_similarity

from models.multi_exit import MultiExitModel
from serve.tokenization.tokenizer import Tokens


class States(NamedTuple):
    """The hidden states of some texts.

    Attributes:
        means: (1 + layers, texts, width) the mean over a text's tokens, of the embeddings first.
        cosines: (layers, texts) of a token's states before and after a layer, the mean over the
            text's tokens.
    """

    means: NDArray[np.float64]
    cosines: NDArray[np.float64]


def states_of(model: MultiExitModel, texts: Sequence[Tokens]) -> States:
    """Run texts one by one through all layers; no padding is among the states."""
    found = [_states(model, tokens) for tokens in texts]
    means = np.stack([mean for mean, _ in found], axis=1)
    return States(means, np.stack([cosines for _, cosines in found], axis=1))


def cka(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the linear centred kernel alignment of two layers' states, 1 for equal geometry.

    Kornblith et al. 2019, with the unbiased estimate of the dependence (Song et al. 2012): the
    plain one calls independent states alike when they are wider than there are texts.

    Args:
        one: (texts, width), four texts or more.
        other: (texts, width).
    """
    first, second = _kernel(one), _kernel(other)
    scale = _dependence(first, first) * _dependence(second, second)
    return float(_dependence(first, second) / np.sqrt(scale))


def _states(
    model: MultiExitModel, tokens: Tokens
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    ids, types = (torch.from_numpy(x)[None] for x in (tokens.input_ids, tokens.token_type_ids))
    mask, layers = torch.ones_like(ids), range(model.backbone.depth)
    with torch.inference_mode():
        states: list[Tensor] = [model.backbone.embed(ids, types, mask)]
        for layer in layers:
            states.append(model.run_layers(states[-1], mask, layer, layer + 1))
        every = torch.stack(states)[:, 0].double()  # (1 + layers, tokens, width)
        cosines = cosine_similarity(every[1:], every[:-1], dim=-1)
    return every.mean(dim=1).numpy(), cosines.mean(dim=1).numpy()


def _kernel(states: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = states - states.mean(axis=0)
    kernel: NDArray[np.float64] = centred @ centred.T
    np.fill_diagonal(kernel, 0.0)
    return kernel


def _dependence(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the unbiased Hilbert-Schmidt criterion of kernels without their diagonals."""
    count = len(one)
    product = one @ other
    means = one.sum() * other.sum() / ((count - 1) * (count - 2))
    found = np.trace(product) + means - 2 * product.sum() / (count - 2)
    return float(found / (count * (count - 3)))
