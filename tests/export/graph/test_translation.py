"""What differs in weights alone is translated once, and everything else is not."""

from collections.abc import Iterator
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from export.checks.contract import Port
from export.graph import translation
from export.graph.trace import trace
from tests.export.support.graphs import open_graph

HIDDEN = Port("hidden", ir.DataType.FLOAT, ("rows", "width"))
OUT = Port("out", ir.DataType.FLOAT, ("rows", "width"))


class Layer(nn.Module):
    """A weight, a table that is none, a number, and a weight that is not used."""

    def __init__(self, seed: int, *, table: float = 1, factor: float = 2, tied: bool = False):
        super().__init__()
        torch.manual_seed(seed)
        self.inner = nn.Linear(4, 4)
        self.outer = self.inner if tied else nn.Linear(4, 4)
        self.of_others = nn.Linear(4, 4)
        self.register_buffer("table", torch.full((4,), table))
        self.factor = factor

    def forward(self, hidden: Tensor) -> Tensor:
        read: Tensor = self.outer(torch.relu(self.inner(hidden * self.table))) * self.factor
        return read


def traced(layer: nn.Module) -> ir.Model:
    return trace(layer.eval(), (HIDDEN,), (OUT,), {"width": 4})


def answer(model: ir.Model, hidden: Tensor) -> Tensor:
    return torch.from_numpy(open_graph(model).run(None, {"hidden": hidden.numpy()})[0])


@pytest.fixture(scope="module")
def translated() -> Iterator[list[Any]]:
    """Return the programs that have been translated: none of what these tests trace before."""
    programs: list[Any] = []
    export = torch.onnx.export

    def watched(program: Any, **options: Any) -> Any:
        programs.append(program)
        return export(program, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.onnx, "export", watched)
        patch.setattr(translation, "_templates", {})
        traced(Layer(0))
        assert len(programs) == 1
        yield programs


def test_layers_that_are_alike_are_translated_once_and_keep_their_weights(
    translated: list[Any],
) -> None:
    before, hidden = len(translated), torch.randn(3, 4)
    for layer in (Layer(0), Layer(1), Layer(2)):
        model = traced(layer)
        torch.testing.assert_close(answer(model, hidden), layer(hidden))
    assert len(translated) == before


@pytest.mark.parametrize(
    "other",
    [
        Layer(1, table=3),
        Layer(1, factor=3),
        Layer(1, tied=True),
        Layer(1).double(),
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)),
    ],
    ids=["table", "factor", "tied", "type", "size"],
)
def test_a_layer_that_differs_in_more_than_weights_is_translated_for_itself(
    other: nn.Module, translated: list[Any]
) -> None:
    before = len(translated)
    if next(other.parameters()).dtype == torch.float64:
        other = nn.Sequential(_Cast(torch.float64), other, _Cast(torch.float32))
    hidden = torch.randn(3, 4)
    torch.testing.assert_close(answer(traced(other), hidden), other(hidden))
    assert len(translated) == before + 1


def test_weights_bear_their_own_names(translated: list[Any]) -> None:
    before, names = len(translated), []
    layers = nn.ModuleList([Layer(0), Layer(1)])
    for index in range(2):
        model = traced(_Nth(layers, index))
        names.append({name for name in model.graph.initializers if name.endswith("bias")})
    assert names[0] == {"layers.0.inner.bias", "layers.0.outer.bias"}
    assert names[1] == {"layers.1.inner.bias", "layers.1.outer.bias"}
    assert len(translated) == before


class _Cast(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden.to(self.dtype)


class _Nth(nn.Module):
    """One of several layers; the others' weights are part of the module all the same."""

    def __init__(self, layers: nn.ModuleList, index: int) -> None:
        super().__init__()
        self.layers = layers
        self.index = index

    def forward(self, hidden: Tensor) -> Tensor:
        read: Tensor = self.layers[self.index](hidden)
        return read
