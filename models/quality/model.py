"""The models that are measured: bundles in each precision, and checkpoints of any format."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.checkpoints import LoadedCheckpoint, load
from models.errors import TrainingFailed
from models.model_folder import read_policy
from models.quality.costs import (
    LAYERS,
    MFLOPS,
    MFLOPS_LINEAR,
    MS,
    Cost,
    Costs,
    LayerCost,
    RowCost,
    TimeCost,
    flops_by_exit,
    layer_costs,
    num_parameters,
)
from models.quality.source import BundleSource, Source, TorchSource
from serve.bundle.loader import MANIFEST, Bundle, load_bundle
from serve.bundle.manifest import Precision, TrainedFor
from serve.classifier.small_exits import open_small
from serve.classifier.variant import model_shape, variant_costs
from serve.policy.document import DEFAULT, Policy
from serve.policy.ladder import Ladder
from serve.policy.profile import RuleOrTarget
from serve.runtime.hardware import available_threads
from serve.runtime.placement import Placement, build_runner, place

_NOT_COUNTED = (
    "a bundle holds graphs, not the modules that PyTorch's counter reads: name the model that it "
    "was exported from by --model"
)
_NOT_TIMED = (
    "a checkpoint runs in PyTorch here, whose times say little of the server's: export it, and "
    "evaluate the bundle"
)


@dataclass(frozen=True)
class Model:
    """A model in one precision.

    Attributes:
        name: told apart from the other models of the report.
        origin: what it was read from, such as `bundle` or `DeeBERT checkpoint`.
        precision: what it computes in.
        source: runs texts.
        costs: from (rows,) tokens to what texts cost, as far as that is known.
        trained_for: the method and the rule that its heads were trained for, if they are known.
        policy: its own.
        ladder: certified rules of just this variant.
        num_parameters: None where the model's modules are not at hand.
        unknown: why a cost is not known, by its unit.
    """

    name: str
    origin: str
    precision: Precision
    source: Source
    costs: Callable[[NDArray[np.intp]], Costs]
    trained_for: TrainedFor = field(default_factory=TrainedFor)
    policy: Policy = field(default_factory=Policy)
    ladder: Ladder | None = None
    num_parameters: int | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def profiles(self) -> Mapping[str, RuleOrTarget]:
        """Rules and targets that the policy names, and the default if it has no name."""
        named = isinstance(self.policy.default, str)
        return self.policy.profile_wishes if named else self.policy.wishes

    @property
    def served(self) -> str:
        """Which of the profiles requests without `exit` get."""
        return self.policy.default if isinstance(self.policy.default, str) else DEFAULT


def open_models(
    folders: Sequence[Path], precisions: Sequence[str], originals: Sequence[Path] = ()
) -> list[Model]:
    """Load models, bundles once for each precision.

    Args:
        folders: bundles, model folders and checkpoints.
        precisions: of bundles: `fp32`, `int8`, `fp16`, or `auto`, which the server would take.
        originals: models that bundles were exported from.

    Raises:
        OfframpError: a folder holds nothing that can be measured, a bundle lacks a precision, or
            an original fits no bundle.
    """
    bundles = {f: load_bundle(f) for f in folders if (f / MANIFEST).is_file()}
    if not bundles and any(precision not in ("auto", "fp32") for precision in precisions):
        raise TrainingFailed(
            f"--precision {','.join(precisions)} is for bundles; checkpoints run in fp32: "
            "`offramp export` makes a bundle of one"
        )
    loaded = {folder: load(folder) for folder in originals}
    original_of = {
        folder: next((each for each in loaded.values() if _fits(bundle, each)), None)
        for folder, bundle in bundles.items()
    }
    for folder, model in loaded.items():
        if not any(model is each for each in original_of.values()):
            raise _unfit(folder)
    opened: list[Model] = []
    for folder, name in zip(folders, _names(folders), strict=True):
        if bundle := bundles.get(folder):
            placements = dict.fromkeys(place(bundle, "auto", precision) for precision in precisions)
            opened += [_variant(bundle, p, name, original_of[folder]) for p in placements]
        else:
            opened.append(_checkpoint(folder, name))
    return opened


def fitting_original(bundle: Bundle, folder: Path) -> LoadedCheckpoint:
    """Load the model that a bundle was exported from.

    Raises:
        OfframpError: the folder holds none, or one of other layers, width or labels.
    """
    loaded = load(folder)
    if not _fits(bundle, loaded):
        raise _unfit(folder)
    return loaded


def _variant(
    bundle: Bundle, placement: Placement, name: str, original: LoadedCheckpoint | None
) -> Model:
    """Return a bundle in one precision; its operations are counted of what it was exported from."""
    manifest, precision = bundle.manifest, placement.precision
    exits = manifest.exit_layers
    counted = original and not manifest.small  # of a small model there is no original here

    def costs(num_tokens: NDArray[np.intp]) -> Costs:
        known: dict[str, Cost] = {
            LAYERS: LayerCost(manifest.traits),
            MS: _times(bundle, placement, num_tokens),
        }
        if original and counted:
            known |= flops_by_exit(original.model, num_tokens, exits)
        before = manifest.traits.num_before
        return known | {u: c.after(before) for u, c in known.items() if isinstance(c, RowCost)}

    return Model(
        name=f"{name} {precision}",
        origin="bundle",
        precision=precision,
        source=BundleSource(bundle, placement),
        costs=costs,
        trained_for=manifest.trained_for,
        policy=manifest.policy,
        ladder=bundle.ladder(precision),
        num_parameters=num_parameters(original.model) if original else None,
        unknown={} if counted else dict.fromkeys((MFLOPS, MFLOPS_LINEAR), _NOT_COUNTED),
    )


def _times(bundle: Bundle, placement: Placement, num_tokens: NDArray[np.intp]) -> TimeCost:
    runner = build_runner(bundle, placement, available_threads())
    shape = model_shape(bundle.manifest)
    mean_tokens = round(float(num_tokens.mean()))
    small = open_small(bundle, placement, available_threads())
    return TimeCost(variant_costs(bundle, runner, shape, mean_tokens, small))


def _checkpoint(folder: Path, name: str) -> Model:
    """Load a checkpoint of any format that can be exported.

    Raises:
        UnusableCheckpoint: the folder holds none that can be served.
    """
    loaded = load(folder)
    model = loaded.model

    def costs(num_tokens: NDArray[np.intp]) -> Costs:
        layers = layer_costs(model.exits, len(num_tokens))
        return {LAYERS: layers, **flops_by_exit(model, num_tokens)}

    return Model(
        name=name,
        origin=f"{loaded.info.format} checkpoint",
        precision="fp32",
        source=TorchSource(model, loaded.tokenizer, loaded.max_tokens),
        costs=costs,
        trained_for=loaded.trained_for,
        policy=read_policy(folder) or loaded.policy,
        num_parameters=num_parameters(model),
        unknown={MS: _NOT_TIMED},
    )


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the folders' names, with their parents' where two have the same."""
    resolved = [folder.resolve() for folder in folders]
    several = Counter(path.name for path in resolved)
    return [
        f"{path.parent.name}/{path.name}" if several[path.name] > 1 else path.name
        for path in resolved
    ]


def _fits(bundle: Bundle, original: LoadedCheckpoint) -> bool:
    """Return whether the bundle can have been exported from a model."""
    manifest, model = bundle.manifest, original.model
    return (
        manifest.width == model.config.hidden_size
        and set(manifest.exit_layers) <= set(model.exits)
        and manifest.num_layers == model.exits[-1]
        and manifest.labels == tuple(model.labels)
    )


def _unfit(folder: Path) -> TrainingFailed:
    return TrainingFailed(
        f"--model {folder}: no bundle that is measured has its layers, width and labels; "
        "name the model that a bundle was exported from"
    )
