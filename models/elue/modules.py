"""ELUE's test file: what ran for each text, priced by the model's own modules."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.data.lines import read_lines
from models.errors import UnusableData
from models.prediction.formats import ELUE
from models.quality.costs import ModuleFlops

# No text has no tokens, or ten million.
_SIZE = r"[1-9]\d{0,6}"
_MODULE = re.compile(rf"\(({_SIZE}(?:,{_SIZE})*)\),(\w+)", re.ASCII)


class RanModules(NamedTuple):
    """A row of a test file.

    Attributes:
        text: its index, as written.
        num_tokens: that the model read.
        modules: names of those that ran, in order.
    """

    text: str
    num_tokens: int
    modules: tuple[str, ...]


def read_test_file(path: Path, model: ModuleFlops, width: int) -> list[RanModules]:
    """Read a test file.

    Args:
        path: tab separated, with the header `index`, `pred`, `modules`.
        model: whose modules may occur.
        width: of its hidden states.

    Raises:
        UnusableData: no such file, or modules that the model does not have, or does not run so.
    """
    rows = list(_rows(path, model, width))
    if not rows:
        raise UnusableData(f"{path}: the file has no rows")
    return rows


def flops_of(rows: list[RanModules], model: ModuleFlops) -> NDArray[np.float64]:
    """Return (conventions, rows) the operations of each row, in units of 10^6."""
    by_module = model.of(np.array([row.num_tokens for row in rows]))
    ran = np.array([[name in row.modules for row in rows] for name in model.names])
    found: NDArray[np.float64] = np.where(ran, by_module, 0).sum(axis=1)
    return found


def _rows(path: Path, model: ModuleFlops, width: int) -> Iterator[RanModules]:
    for number, line in read_lines(path):
        cells = line.rstrip("\r\n").split("\t")
        if number == 1:
            if cells != ELUE.split("\t"):
                raise UnusableData(
                    f"{path} line 1: expected the header index, pred, modules with tabs between, "
                    "as `offramp predict --format elue` writes it"
                )
        elif cells != [""]:
            if len(cells) != 3:
                raise UnusableData(f"{path} line {number}: {len(cells)} columns, not 3")
            try:
                yield _row(cells[0], cells[2], model, width)
            except ValueError as error:
                raise UnusableData(f"{path} line {number}: {error}") from None


def _row(index: str, written: str, model: ModuleFlops, width: int) -> RanModules:
    parts = [_MODULE.fullmatch(part.strip()) for part in written.strip(" ;").split(";")]
    if None in parts:
        raise ValueError(
            f"{written[:40]!r} is no list of modules such as (10),emb; (10,768),layer_1"
        )
    shapes = [(tuple(map(int, part[1].split(","))), part[2]) for part in parts if part]
    names = tuple(name for _, name in shapes)
    (first, *_), _name = shapes[0]
    for shape, name in shapes:
        if name not in model.names:
            raise ValueError(f"the model has no module {name}; it has {', '.join(model.names)}")
        if shape not in _shapes(name, first, width):
            raise ValueError(f"{name} takes no input of shape {shape}; the width is {width}")
    _check_order(names, model)
    return RanModules(index, first, names)


def _shapes(name: str, num_tokens: int, width: int) -> tuple[tuple[int, ...], ...]:
    """Return the shapes that a module's input may have; a head reads one token's, or all."""
    if name == "emb":
        return ((num_tokens,),)
    every = num_tokens, width
    return ((width,), every) if name.startswith("exit_") else (every,)


def _check_order(names: tuple[str, ...], model: ModuleFlops) -> None:
    """Raise ValueError unless all layers up to an exit ran, each module once and in order."""
    ran = [name for name in model.names if name in names]
    if list(names) != ran or names[0] != "emb":
        raise ValueError("modules run once each, in the model's order, from emb on")
    until = model.names[: model.names.index(names[-1])]
    skipped = any(name not in names for name in until if not name.startswith("exit_"))
    if skipped or not names[-1].startswith("exit_"):
        raise ValueError("a text runs every layer up to the exit at which it leaves")
