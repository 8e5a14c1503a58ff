"""Post-norm transformer layers on a dict of tensors, one text at a time."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

State = dict[str, Tensor]
Gelu = Callable[[Tensor], Tensor]


@dataclass
class Names:
    """What a toolkit calls the parts of a layer, and how it normalises."""

    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    merge: str = "attention.output.dense"
    norm_1: str = "attention.output.LayerNorm"
    up: str = "intermediate.dense"
    down: str = "output.dense"
    norm_2: str = "output.LayerNorm"
    gain: str = "weight"
    shift: str = "bias"
    unbiased: bool = False
    epsilon: float = 1e-12
    gelu: Gelu = field(default=functional.gelu)


BERT = Names()
DISTILBERT = Names(
    "attention.q_lin",
    "attention.k_lin",
    "attention.v_lin",
    "attention.out_lin",
    "sa_layer_norm",
    "ffn.lin1",
    "ffn.lin2",
    "output_layer_norm",
)
ALBERT = Names(
    "attention.query",
    "attention.key",
    "attention.value",
    "attention.dense",
    "attention.LayerNorm",
    "ffn",
    "ffn_output",
    "full_layer_layer_norm",
    gelu=lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
)
UER = Names(
    "self_attn.linear_layers.0",
    "self_attn.linear_layers.1",
    "self_attn.linear_layers.2",
    "self_attn.final_linear",
    "layer_norm_1",
    "feed_forward.linear_1",
    "feed_forward.linear_2",
    "layer_norm_2",
    gain="gamma",
    shift="beta",
    unbiased=True,
    gelu=lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
)


def linear(state: State, name: str, x: Tensor) -> Tensor:
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def norm(state: State, name: str, x: Tensor, names: Names = BERT) -> Tensor:
    gain, shift = state[f"{name}.{names.gain}"], state[f"{name}.{names.shift}"]
    if names.unbiased:
        return gain * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + shift
    variance = ((x - x.mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True)
    return gain * (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + names.epsilon) + shift


def attention(state: State, place: str, x: Tensor, heads: int, names: Names) -> Tensor:
    """Attend among the (tokens, width) of one text, head by head."""
    query, key, value = (
        linear(state, f"{place}.{name}", x) for name in (names.query, names.key, names.value)
    )
    width = x.shape[-1] // heads
    merged = []
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        scores = query[:, part] @ key[:, part].T / math.sqrt(width)
        merged.append(torch.softmax(scores, dim=-1) @ value[:, part])
    return linear(state, f"{place}.{names.merge}", torch.cat(merged, dim=-1))


def layer(state: State, place: str, x: Tensor, heads: int, names: Names = BERT) -> Tensor:
    """Run one layer on the (tokens, width) of one text."""
    attended = norm(
        state, f"{place}.{names.norm_1}", attention(state, place, x, heads, names) + x, names
    )
    grown = names.gelu(linear(state, f"{place}.{names.up}", attended))
    shrunk = linear(state, f"{place}.{names.down}", grown)
    return norm(state, f"{place}.{names.norm_2}", shrunk + attended, names)


def embed(
    state: State, place: str, ids: list[int], types: list[int] | None, first: int = 0
) -> Tensor:
    """Return (tokens, width): word, position and segment embeddings, normalised."""
    x = state[f"{place}.word_embeddings.weight"][ids]
    x = x + state[f"{place}.position_embeddings.weight"][first : first + len(ids)]
    if types is not None:
        x = x + state[f"{place}.token_type_embeddings.weight"][types]
    return x


def entropy(logits: Tensor) -> float:
    """Return the entropy in nats, of an exact softmax."""
    p = torch.softmax(logits.double(), dim=-1)
    return float(-(p * torch.log(p)).sum())
