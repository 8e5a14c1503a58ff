"""What goes into a bundle, decided before anything is written."""

from dataclasses import dataclass, replace
from pathlib import Path

from export import source, subset
from export.chain.stages import Span, spans
from export.errors import ExportFailed
from models.checkpoints import Loaded, UnusableCheckpoint, load
from models.multi_exit import MultiExitModel
from serve.bundle.calibration import Calibration
from serve.bundle.manifest import Precision, TrainedFor
from serve.policy.document import Policy


@dataclass(frozen=True)
class Export:
    """One export: what, from where, for which precisions and exits.

    Attributes:
        folder: the model's folder.
        model: loaded from it.
        precisions: variants to write.
        spans: one per exit.
        policy: what of the model's policy these exits can follow.
        calibration: what of the model's figures holds for these exits and precisions.
        trained_for: what the checkpoint says of its rule.
        tokenizer: the content of `tokenizer.json`.
        whole: whether this is the whole model; what was recorded of it holds for no other.
        notes: what does not hold, and what else the user should know.
    """

    folder: Path
    model: MultiExitModel
    precisions: tuple[Precision, ...]
    spans: tuple[Span, ...]
    policy: Policy
    calibration: Calibration
    trained_for: TrainedFor
    tokenizer: str
    whole: bool
    notes: tuple[str, ...]

    @property
    def kept(self) -> list[int]:
        """Which of the model's exits are exported, counted from 0."""
        return [self.model.exits.index(span.exit_layer) for span in self.spans]

    @property
    def num_steps(self) -> int:
        """How often `export.bundle.write` reports."""
        return len(self.spans) + len(self.precisions)


def plan(
    folder: Path,
    precisions: tuple[Precision, ...],
    wanted: tuple[int, ...] | None = None,
    layers: int | None = None,
    last_ramp: bool = False,
) -> Export:
    """Load a model and decide what goes into its bundle.

    Args:
        folder: any checkpoint that `models.checkpoints` recognises.
        precisions: variants to write.
        wanted: exit layers; None for all the model has.
        layers: keep only so many layers of the model.
        last_ramp: bring back DeeBERT's last ramp.

    Raises:
        ExportFailed: the model cannot be read, or has no such exits.
    """
    loaded = _load(folder, layers, last_ramp)
    model = loaded.model
    chosen = spans(model.exits, wanted)
    exits = tuple(span.exit_layer for span in chosen)
    stated = (folder / source.POLICY).is_file()
    policy, lost = subset.fitting_policy(
        source.read_policy(folder) if stated else loaded.policy, replace(model.traits, exits=exits)
    )
    calibration, unmeasured = subset.fitting_calibration(
        Calibration() if layers else source.read_calibration(folder),
        exits,
        model.exits,
        precisions,
    )
    return Export(
        folder,
        model,
        precisions,
        chosen,
        policy,
        calibration,
        loaded.trained_for,
        loaded.tokenizer,
        layers is None,
        (*loaded.found.notes, *lost, *unmeasured),
    )


def _load(folder: Path, layers: int | None, last_ramp: bool) -> Loaded:
    try:
        return load(folder, last_ramp, layers)
    except UnusableCheckpoint as error:
        raise ExportFailed(str(error)) from error
