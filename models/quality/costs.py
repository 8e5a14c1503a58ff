"""What a text costs by the exit it leaves at: layers, milliseconds, or operations.

PyTorch's own counter finds the operations. Two conventions are in use, and figures only compare
within one:

* `mflops`, of the ELUE benchmark: two operations for each multiply-accumulate, attention included;
  softmax and layer norm count two multiply-accumulates an element; embeddings, activations and
  additions count nothing.
* `mflops_linear`, as `thop` counts, with which FastBERT was published: linear layers alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from models.multi_exit import MultiExitModel
from serve.classifier.exit_costs import ExitCosts
from serve.rules import CompiledRule
from serve.rules.traits import Traits

LAYERS, MS, MFLOPS, MFLOPS_LINEAR = "layers", "ms", "mflops", "mflops_linear"

_ATEN = torch.ops.aten
_LINEAR = {_ATEN.mm, _ATEN.addmm, _ATEN.convolution}
_EXIT = "exit_"
_ELEMENTWISE = (_ATEN._softmax, _ATEN._safe_softmax, _ATEN.native_layer_norm)


class RowCost(NamedTuple):
    """The cost of every row at every exit.

    Attributes:
        run: (layers, rows) running on to the exit, without what is asked there.
        asked: (layers, rows) asking the exit: its head and what reads it.
        before: how many of these layers are before the first exit.
    """

    run: NDArray[np.float64]
    asked: NDArray[np.float64]
    before: int = 0

    def after(self, num_before: int) -> "RowCost":
        """Return the costs with those of places before the first layer, which are nothing."""
        none = np.zeros((num_before, self.run.shape[1]))
        run, asked = (np.concatenate([none, each]) for each in (self.run, self.asked))
        return RowCost(run, asked, num_before)

    def of(self, exits: NDArray[np.intp], rule: CompiledRule) -> NDArray[np.float64]:
        """Return (rows,) what rows cost that leave at these places in `Traits.layers` by a rule.

        A row is asked at every exit that the rule hears.
        """
        each = np.arange(len(exits))
        asked_to = np.concatenate([np.zeros((1, len(exits))), self.asked.cumsum(axis=0)])
        before = asked_to[np.minimum(rule.first_heard + self.before, exits), each]
        run: NDArray[np.float64] = self.run[exits, each]
        return run + asked_to[exits + 1, each] - before


class LayerCost(NamedTuple):
    """Layers that texts run, those of a small model in front at what they cost."""

    traits: Traits

    def of(self, exits: NDArray[np.intp], rule: CompiledRule) -> NDArray[np.float64]:
        """Return (rows,) what each row costs, as `RowCost` does."""
        return np.array(self.traits.layers_taken(rule.rule), np.float64)[exits]


class TimeCost(NamedTuple):
    """Milliseconds of a lone text of the data's mean length, as the server expects them."""

    exit_costs: ExitCosts

    def of(self, exits: NDArray[np.intp], rule: CompiledRule) -> NDArray[np.float64]:
        """Return (rows,) what each row costs, as `RowCost` does."""
        return np.array(self.exit_costs.until_exits_ms(rule))[exits]


# By unit, as far as they are known.
Cost: TypeAlias = RowCost | LayerCost | TimeCost
Costs: TypeAlias = Mapping[str, Cost]


def layer_costs(exits: tuple[int, ...], num_rows: int) -> RowCost:
    """Return the layers that rows run; asking an exit takes none."""
    run = np.repeat(np.array(exits, np.float64)[:, None], num_rows, axis=1)
    return RowCost(run, np.zeros_like(run))


def num_parameters(model: MultiExitModel) -> int:
    """Return how many numbers the model has learned; those that layers share count once."""
    return sum(parameter.numel() for parameter in model.parameters())


class ModuleFlops(NamedTuple):
    """The operations of a model's modules, in units of 10^6.

    Attributes:
        names: in the order in which they run, such as `emb`, `layer_1`, `exit_1`, `layer_2`.
        powers: (conventions, modules, powers of the tokens); the conventions are `MFLOPS` and
            `MFLOPS_LINEAR`.
    """

    names: tuple[str, ...]
    powers: NDArray[np.float64]

    def of(self, num_tokens: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return (conventions, modules, rows) the operations of texts."""
        degree = self.powers.shape[-1]
        return self.powers @ np.vander(num_tokens.astype(np.float64), degree, increasing=True).T

    def by_exit(self, num_tokens: NDArray[np.intp], exits: Sequence[int]) -> dict[str, RowCost]:
        """Return the operations as costs of rows at these exit layers."""
        by_module = self.of(num_tokens)
        is_exit = np.array([name.startswith(_EXIT) for name in self.names])
        body = np.where(is_exit[:, None], 0, by_module).cumsum(axis=1)
        places = [self.names.index(f"{_EXIT}{layer}") for layer in exits]
        run, asked = body[:, places], by_module[:, places]
        return {MFLOPS: RowCost(run[0], asked[0]), MFLOPS_LINEAR: RowCost(run[1], asked[1])}


def module_flops(model: MultiExitModel, lengths: Sequence[int]) -> ModuleFlops:
    """Count the operations of every module.

    Attention is quadratic in the tokens and all else linear, so that three different lengths give
    every other length exactly.

    Args:
        model: any.
        lengths: of the texts that the counter runs.
    """
    known = np.unique(lengths)
    by_length = [_counted(model, int(length)) for length in known]
    counted = np.stack([list(each.values()) for each in by_length])  # (lengths, modules, 2)
    powers = np.vander(known.astype(np.float64), increasing=True)
    found = np.linalg.solve(powers, counted.reshape(len(known), -1))
    by_power = np.moveaxis(found.reshape(len(known), len(by_length[0]), -1), 0, -1)
    return ModuleFlops(tuple(by_length[0]), by_power.transpose(1, 0, 2).astype(np.float64))


def flops_by_exit(
    model: MultiExitModel, num_tokens: NDArray[np.intp], exits: tuple[int, ...] | None = None
) -> dict[str, RowCost]:
    """Return the operations, in units of 10^6, that each row takes to each exit.

    Args:
        model: any.
        num_tokens: (rows,).
        exits: layers of the exits that are in use; None for all.
    """
    shortest, longest = int(num_tokens.min()), int(num_tokens.max())
    found = module_flops(model, [shortest, (shortest + longest) // 2, longest])
    return found.by_exit(num_tokens, exits or model.exits)


def _counted(model: MultiExitModel, length: int) -> dict[str, NDArray[np.float64]]:
    """Return (conventions,) of every module, in the order in which they run on one text."""
    ids = torch.full((1, length), 2)
    mask, types = torch.ones_like(ids), torch.zeros_like(ids)
    with _counting() as counter:
        hidden, start = model.backbone.embed(ids, types, mask), 0
        totals = {"emb": _totals(counter)}
        for index, stop in enumerate(model.exits):
            for layer in range(start, min(stop, model.backbone.depth)):
                hidden = model.run_layers(hidden, mask, layer, layer + 1)
                totals[f"layer_{layer + 1}"] = _totals(counter)
            model.head(index).output(model.backbone.head_input(hidden), mask)
            totals[f"{_EXIT}{stop}"] = _totals(counter)
            start = stop
    each = np.diff(list(totals.values()), axis=0, prepend=0) / 1e6
    return dict(zip(totals, each, strict=True))


@contextmanager
def _counting() -> Iterator[FlopCounterMode]:
    rules = dict.fromkeys(_ELEMENTWISE, _four_per_element)
    counter = FlopCounterMode(display=False, custom_mapping=rules)
    # Plain matrix products, which the counter knows; it does not know the CPU's fused attention.
    # Not inference mode, in which the counter cannot follow weights that are passed to a module.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        yield counter


def _totals(counter: FlopCounterMode) -> list[int]:
    """Return the operations so far by both conventions."""
    by_operator = counter.get_flop_counts().get("Global", {})
    linear = sum(count for operator, count in by_operator.items() if operator in _LINEAR)
    return [sum(by_operator.values()), linear]


def _four_per_element(shape: torch.Size, *_: Any, **__: Any) -> int:
    return 4 * shape.numel()
