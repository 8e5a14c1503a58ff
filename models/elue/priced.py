"""`offramp elue flops`: a test file's texts with what they cost."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.checkpoints import load
from models.elue.modules import RanModules, flops_of, read_test_file
from models.errors import TrainingFailed
from models.prediction.opening import COUNTED
from models.quality.costs import MFLOPS, MFLOPS_LINEAR, module_flops, num_parameters
from serve.bundle.loader import MANIFEST

_CONVENTIONS = {MFLOPS: "MFLOPs, as ELUE counts", MFLOPS_LINEAR: "MFLOPs, linear layers"}


@dataclass(frozen=True, eq=False)
class Priced:
    """A test file.

    Attributes:
        rows: what ran.
        flops: (conventions, rows) in units of 10^6.
        parameters: of the model.
    """

    rows: list[RanModules]
    flops: NDArray[np.float64]
    parameters: int

    def summary(self) -> list[str]:
        """Return means, totals and parameters as lines."""
        pairs = zip(_CONVENTIONS.values(), self.flops, strict=True)
        lines = [f"{name}: mean {each.mean():.3f}, total {each.sum():.1f}" for name, each in pairs]
        return [f"texts: {len(self.rows)}", *lines, f"parameters: {self.parameters / 1e6:.3f} M"]

    def table(self) -> str:
        """Return a line for each text, under a header, with tabs between."""
        lines = ["\t".join(("index", *_CONVENTIONS))]
        for row, each in zip(self.rows, self.flops.T.tolist(), strict=True):
            lines.append("\t".join([row.text, *(f"{flops:.3f}" for flops in each)]))
        return "\n".join(lines) + "\n"


def price(folder: Path, test_file: Path) -> Priced:
    """Count what ran for each text of a test file.

    Raises:
        OfframpError: the folder holds no model, or the file's modules are not the model's.
    """
    if (folder / MANIFEST).is_file():
        raise TrainingFailed(
            f"{folder} is a bundle, which holds graphs and no modules: give the model that it was "
            "exported from"
        )
    loaded = load(folder)
    modules = module_flops(loaded.model, [min(n, loaded.max_tokens) for n in COUNTED])
    rows = read_test_file(test_file, modules, loaded.model.config.hidden_size)
    return Priced(rows, flops_of(rows, modules), num_parameters(loaded.model))
