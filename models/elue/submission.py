"""ELUE's test file: predictions, and what ran for each text, priced by the model's own modules."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.checkpoints import load
from models.data.lines import read_lines
from models.errors import TrainingFailed, UnusableData
from models.prediction.formats import ELUE
from models.prediction.opening import COUNTED
from models.quality.costs import MFLOPS, MFLOPS_LINEAR, ModuleFlops, module_flops, num_parameters
from models.quality.data import data_of, read_for
from models.quality.recorded import inputs
from models.quality.scores import benchmark_scores
from serve.bundle.loader import MANIFEST
from serve.rules.traits import Traits

SUBMITTED = "submitted"
_CONVENTIONS = {MFLOPS: "MFLOPs, as ELUE counts", MFLOPS_LINEAR: "MFLOPs, linear layers"}
# No text has no tokens, or ten million.
_SIZE = r"[1-9]\d{0,6}"
_MODULE = re.compile(rf"\(({_SIZE}(?:,{_SIZE})*)\),(\w+)", re.ASCII)


class Row(NamedTuple):
    """A row of a test file.

    Attributes:
        text: its index, as written.
        said: the label's id or the value, as written.
        num_tokens: that the model read.
        modules: names of those that ran, in order.
    """

    text: str
    said: str
    num_tokens: int
    modules: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Priced:
    """A test file.

    Attributes:
        path: the file.
        rows: what was said and ran.
        flops: (conventions, rows) in units of 10^6.
    """

    path: Path
    rows: list[Row]
    flops: NDArray[np.float64]

    def summary(self) -> list[str]:
        """Return means and totals as lines."""
        pairs = zip(_CONVENTIONS.values(), self.flops, strict=True)
        lines = [f"{name}: mean {each.mean():.3f}, total {each.sum():.1f}" for name, each in pairs]
        return [f"texts: {len(self.rows)}", *lines]

    def table(self) -> str:
        """Return a line for each text, under a header, with tabs between."""
        lines = ["\t".join(("index", *_CONVENTIONS))]
        for row, each in zip(self.rows, self.flops.T.tolist(), strict=True):
            lines.append("\t".join([row.text, *(f"{flops:.3f}" for flops in each)]))
        return "\n".join(lines) + "\n"

    def answers(self, traits: Traits, num_rows: int) -> NDArray[np.float32]:
        """Return (rows, labels) logits that say what the file says, in the order of the data.

        Raises:
            UnusableData: indices that are not 0, 1, ... of so many rows, or no label's id or value.
        """
        found = {row.text: row.said for row in self.rows}
        if found.keys() != {str(i) for i in range(num_rows)} or len(self.rows) != num_rows:
            raise UnusableData(
                f"{self.path}: expected the indices 0 to {num_rows - 1} once each, one for each "
                "row of the data"
            )
        said = [found[str(i)] for i in range(num_rows)]
        try:
            values = np.array(said, np.float64)
        except ValueError:
            values = np.array([np.nan])
        if traits.task == "regression" and np.isfinite(values).all():
            return values[:, None].astype(np.float32)
        if traits.task == "single_label" and np.isin(values, range(len(traits.labels))).all():
            return np.eye(len(traits.labels), dtype=np.float32)[values.astype(int)]
        raise UnusableData(
            f"{self.path}: expected in each row the id of one of the model's "
            f"{len(traits.labels)} labels, or a regression's value"
        )


class Submission:
    """The model that test files were predicted with."""

    def __init__(self, folder: Path) -> None:
        """Read the model.

        Raises:
            OfframpError: the folder holds no model.
        """
        if folder.is_file():
            raise TrainingFailed(
                f"{folder} is a file. Of a program, such as ELUE's model.py with its module_list, "
                "nothing is run here: give the folder of the model or checkpoint whose weights it "
                "loads, whose layers and exits are the modules emb, layer_1, exit_1 and so on"
            )
        if (folder / MANIFEST).is_file():
            raise TrainingFailed(
                f"{folder} is a bundle, which holds graphs and no modules: give the model that it "
                "was exported from"
            )
        loaded = load(folder)
        self.name, self.traits = folder.resolve().name, loaded.model.traits
        self.parameters = num_parameters(loaded.model)
        self._modules = module_flops(loaded.model, [min(n, loaded.max_tokens) for n in COUNTED])
        self._width = loaded.model.config.hidden_size

    def price(self, path: Path) -> Priced:
        """Count what ran for each text of a test file.

        Raises:
            UnusableData: no such file, or modules that the model does not have, or run so.
        """
        rows = list(_rows(path, self._modules, self._width))
        if not rows:
            raise UnusableData(f"{path}: the file has no rows")
        by_module = self._modules.of(np.array([row.num_tokens for row in rows]))
        ran = np.array([[name in row.modules for row in rows] for name in self._modules.names])
        return Priced(path, rows, np.where(ran, by_module, 0).sum(axis=1))

    def report(self, paths: Sequence[Path], data: Path) -> dict[str, Any]:
        """Return test files' points as `offramp evaluate` reports a model's.

        Args:
            paths: one for each setting of the model's rule, all of the same texts.
            data: these texts with the correct answers.
        """
        examples = read_for(data, self.traits).examples
        gold, points = np.array(inputs(examples)[1]), []
        for path in paths:
            priced = self.price(path)
            logits = priced.answers(self.traits, len(examples))
            points.append(
                {
                    "metrics": benchmark_scores(self.traits, gold, logits),
                    "costs": dict(
                        zip(_CONVENTIONS, priced.flops.mean(axis=1).tolist(), strict=True)
                    ),
                }
            )
        model = {
            "name": self.name,
            "task": self.traits.task,
            "data": data_of(data, len(examples)).model_dump(),
            "parameters": self.parameters,
            "rules": {"families": {SUBMITTED: points}, "family_to_judge_by": SUBMITTED},
        }
        return {"models": [model]}


def _rows(path: Path, model: ModuleFlops, width: int) -> Iterator[Row]:
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
                yield Row(cells[0], cells[1], *_ran(cells[2], model, width))
            except ValueError as error:
                raise UnusableData(f"{path} line {number}: {error}") from None


def _ran(written: str, model: ModuleFlops, width: int) -> tuple[int, tuple[str, ...]]:
    """Return how many tokens the modules read, and their names.

    Raises:
        ValueError: the model has no such modules, or does not run so.
    """
    parts = [_MODULE.fullmatch(part.strip()) for part in written.strip(" ;").split(";")]
    if None in parts:
        raise ValueError(
            f"{written[:40]!r} is no list of modules such as (10),emb; (10,768),layer_1"
        )
    shapes = [(tuple(map(int, part[1].split(","))), part[2]) for part in parts if part]
    names = tuple(name for _, name in shapes)
    num_tokens = shapes[0][0][0]
    for shape, name in shapes:
        if name not in model.names:
            raise ValueError(f"the model has no module {name}; it has {', '.join(model.names)}")
        # A head reads one token's state, or all.
        may_be = [(num_tokens,)] if name == "emb" else [(num_tokens, width)]
        if shape not in may_be + ([(width,)] if name.startswith("exit_") else []):
            raise ValueError(f"{name} takes no input of shape {shape}; the width is {width}")
    if list(names) != [name for name in model.names if name in names] or names[0] != "emb":
        raise ValueError("modules run once each, in the model's order, from emb on")
    until = model.names[: model.names.index(names[-1])]
    skipped = any(name not in names for name in until if not name.startswith("exit_"))
    if skipped or not names[-1].startswith("exit_"):
        raise ValueError("a text runs every layer up to the exit at which it leaves")
    return num_tokens, names
