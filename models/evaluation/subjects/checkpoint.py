"""A model folder or another system's checkpoint, run by PyTorch."""

import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from models.checkpoints import LoadedCheckpoint, load
from models.data.encoding import encode
from models.data.examples import Example
from models.errors import TrainingFailed
from models.evaluation.costs import LAYERS, MS, Costs, layer_costs
from models.evaluation.flops import flops_by_exit, num_parameters
from models.evaluation.observation import Subject
from models.evaluation.predictions import predict
from models.evaluation.subjects.measurable import Advance, Pass
from serve.bundle.loader import TOKENIZER
from serve.policy.document import Policy
from serve.rules.traits import Traits
from serve.validation import explain

_POLICY = "policy.json"
_NOT_TIMED = (
    "a checkpoint runs in PyTorch here, whose times say little of the server's: export it, and "
    "evaluate the bundle"
)


class Checkpoint:
    """A checkpoint of any format that can be exported."""

    def __init__(self, folder: Path, name: str) -> None:
        """Load the checkpoint.

        Raises:
            UnusableCheckpoint: the folder holds none that can be served.
        """
        self._folder, self._name = folder, name
        self.loaded: LoadedCheckpoint = load(folder)

    @cached_property
    def subject(self) -> Subject:
        """Name and origin."""
        loaded = self.loaded
        policy = _policy(self._folder, loaded)
        return Subject(
            name=self._name,
            origin=f"{loaded.info.format} checkpoint",
            precision="fp32",
            trained_for=loaded.trained_for,
            profiles=policy.profile_wishes,
            limits=policy.limits,
            num_parameters=num_parameters(loaded.model),
            unknown={MS: _NOT_TIMED},
        )

    @property
    def traits(self) -> Traits:
        """The model as its exit rules see it."""
        return self.loaded.model.traits

    @property
    def temperatures(self) -> tuple[float, ...]:
        """One per exit: checkpoints know none."""
        return (1.0,) * len(self.traits.exits)

    def run(self, examples: Sequence[Example], advance: Advance) -> Pass:
        """Run texts through all exits; long texts are cut."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / TOKENIZER).write_text(self.loaded.tokenizer, "utf-8")
            rows = encode(Path(folder), examples, self.loaded.max_tokens)
        num_tokens = np.array([len(row.ids) for row in rows], np.intp)
        return Pass(predict(self.loaded.model, rows, advance), num_tokens)

    def costs(self, num_tokens: NDArray[np.intp]) -> Costs:
        """Return layers and operations."""
        layers = layer_costs(self.traits.exits, len(num_tokens))
        return {LAYERS: layers, **flops_by_exit(self.loaded.model, num_tokens)}


def _policy(folder: Path, loaded: LoadedCheckpoint) -> Policy:
    path = folder / _POLICY
    if not path.is_file():
        return loaded.policy
    try:
        return Policy.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise TrainingFailed(f"{path}: {explain(error)}") from None
