"""The models of `make zoo` that sections are about."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from models.data.examples import Example
from models.experiments.run import DataName
from models.experiments.section import Context
from models.model_files import CONFIG
from models.quality.data import read_for
from models.quality.recorded import Recorded
from serve.bundle.loader import MANIFEST
from serve.rules.traits import Traits

_SHIPPED = Path("models/zoo")


class ZooModel(NamedTuple):
    """A model that `make zoo` trains, or that is shipped.

    Attributes:
        name: of its folders, such as `sst2-mpnet`.
        data: what it was trained on.
    """

    name: str
    data: DataName

    def folder(self, context: Context) -> Path:
        """Return the model's folder."""
        own = context.places.zoo / self.name
        return own if (own / CONFIG).is_file() else _SHIPPED / self.name

    def recorded(self, context: Context) -> Recorded:
        """Return what all exits say of the texts that its data is measured on, in fp32."""
        return context.measured(self.folder(context), context.data(self.data)).recorded

    def is_trained(self, context: Context) -> bool:
        """Return whether the model is there."""
        return (self.folder(context) / CONFIG).is_file()

    def is_exported(self, context: Context) -> bool:
        """Return whether its bundle is there."""
        return (context.bundle(self.name) / MANIFEST).is_file()


SST2_MINILM = ZooModel("sst2-minilm", "sst2")
SST2_MPNET = ZooModel("sst2-mpnet", "sst2")
MRPC_MPNET = ZooModel("mrpc-mpnet", "mrpc")
RTE_MPNET = ZooModel("rte-mpnet", "rte")


def not_there(context: Context, models: Sequence[ZooModel], exported: bool = False) -> str:
    """Return a sentence that names the models that are missing, with the command; else nothing."""
    missing = [m.name for m in models if not m.is_trained(context)]
    if missing:
        commands = " and ".join(f"`make zoo MODEL={name}`" for name in missing)
        return f"Not trained yet: {', '.join(missing)} ({commands})."
    missing = [m.name for m in models if exported and not m.is_exported(context)]
    commands = " and ".join(f"`make bundle MODEL={name}`" for name in missing)
    return f"Not exported yet: {', '.join(missing)} ({commands})." if missing else ""


def examples_of(context: Context, data: DataName, traits: Traits) -> list[Example]:
    """Return the texts that models of this data are measured on, as one list."""
    return [each for path in context.data(data) for each in read_for(path, traits).examples]
