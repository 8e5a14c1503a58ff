"""Deciding what goes into a bundle, before anything is written."""

from dataclasses import dataclass, replace
from pathlib import Path

from export.chain.stages import Span, spans
from export.errors import ExportFailed
from export.exit_subset import fitting_calibration, fitting_policy
from models.checkpoints import LoadedCheckpoint, UnusableCheckpoint, load
from models.checkpoints.comparison import compare, served_by
from models.model_folder import read_calibration, read_policy
from models.multi_exit import MultiExitModel
from models.table.files import read_facts
from serve.bundle.calibration import Calibration
from serve.bundle.manifest import Precision, Table, TrainedFor
from serve.policy.document import Policy


@dataclass(frozen=True)
class Export:
    """One planned export.

    Attributes:
        folder: the model's folder.
        model: the model loaded from it.
        precisions: variants to write.
        spans: the layers of each segment, one span per exit.
        policy: the part of the model's policy that fits these exits.
        calibration: the part of the model's figures that holds for these exits and precisions.
        table: what is said of the model's table; None without one, and with fewer layers, whose
            answers are others.
        trained_for: the rule that the checkpoint was trained for.
        tokenizer: content of `tokenizer.json`.
        max_tokens: longest input.
        value_is_logit: see `Manifest`.
        compared: what was compared with transformers, or why that was not possible.
        whole: whether no layers are cut off; recorded logits hold for the whole model only.
        notes: remarks for the user, such as dropped parts of the policy.
    """

    folder: Path
    model: MultiExitModel
    precisions: tuple[Precision, ...]
    spans: tuple[Span, ...]
    policy: Policy
    calibration: Calibration
    table: Table | None
    trained_for: TrainedFor
    tokenizer: str
    max_tokens: int
    value_is_logit: bool
    compared: str
    whole: bool
    notes: tuple[str, ...]

    @property
    def kept(self) -> list[int]:
        """Indices of the exported ones among the model's exits, counted from 0."""
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
        folder: a checkpoint of any supported format.
        precisions: variants to write.
        wanted: exit layers; None for all exits of the model.
        layers: keep only the first so many layers.
        last_ramp: include DeeBERT's last ramp as an exit.

    Raises:
        ExportFailed: the model cannot be read, says something else than transformers, or has no
            such exits.
    """
    loaded, chosen, compared = _load(folder, wanted, layers, last_ramp)
    model = loaded.model
    exits = tuple(span.exit_layer for span in chosen)
    policy, lost = fitting_policy(
        read_policy(folder) or loaded.policy, replace(model.traits, exits=exits)
    )
    calibration, unmeasured = fitting_calibration(
        Calibration() if layers else read_calibration(folder),
        exits,
        precisions,
    )
    return Export(
        folder,
        model,
        precisions,
        chosen,
        policy,
        calibration,
        None if layers else read_facts(folder),
        loaded.trained_for,
        loaded.tokenizer,
        loaded.max_tokens,
        loaded.info.value_is_logit,
        compared,
        layers is None,
        (*loaded.info.notes, *lost, *unmeasured),
    )


def _load(
    folder: Path, wanted: tuple[int, ...] | None, layers: int | None, last_ramp: bool
) -> tuple[LoadedCheckpoint, tuple[Span, ...], str]:
    """Return the checkpoint, the layers of its segments, and how it compares with transformers."""
    try:
        loaded = load(folder, last_ramp, layers)
        chosen = spans(loaded.model.exits, wanted)  # the comparison takes long
        return loaded, chosen, compare(folder, loaded, served_by(loaded))
    except UnusableCheckpoint as error:
        raise ExportFailed(str(error)) from error
