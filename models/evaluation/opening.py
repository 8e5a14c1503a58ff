"""From folders to models that can be measured."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from models.checkpoints import LoadedCheckpoint, load
from models.errors import TrainingFailed
from models.evaluation.subject import Model, bundle_model, checkpoint_model
from serve.bundle.loader import MANIFEST, Bundle, load_bundle
from serve.runtime.placement import place


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
    _check_precisions(bundles, precisions)
    loaded = {folder: load(folder) for folder in originals}
    original_of = {folder: _original(bundle, loaded) for folder, bundle in bundles.items()}
    _check_originals(loaded, original_of)
    opened: list[Model] = []
    for folder, name in zip(folders, _names(folders), strict=True):
        if bundle := bundles.get(folder):
            opened += _variants(bundle, name, precisions, original_of[folder])
        else:
            opened.append(checkpoint_model(folder, name))
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


def _variants(
    bundle: Bundle, name: str, precisions: Sequence[str], original: LoadedCheckpoint | None
) -> list[Model]:
    placements = dict.fromkeys(place(bundle, "auto", precision) for precision in precisions)
    return [bundle_model(bundle, p, f"{name} {p.precision}", original) for p in placements]


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the folders' names, with their parents' where two have the same."""
    short = [folder.resolve().name for folder in folders]
    several = Counter(short)
    resolved = [folder.resolve() for folder in folders]
    return [
        f"{path.parent.name}/{name}" if several[name] > 1 else name
        for path, name in zip(resolved, short, strict=True)
    ]


def _check_precisions(bundles: dict[Path, Bundle], precisions: Sequence[str]) -> None:
    if not bundles and any(precision not in ("auto", "fp32") for precision in precisions):
        raise TrainingFailed(
            f"--precision {','.join(precisions)} is for bundles; checkpoints run in fp32: "
            "`offramp export` makes a bundle of one"
        )


def _original(bundle: Bundle, loaded: dict[Path, LoadedCheckpoint]) -> LoadedCheckpoint | None:
    """Return the first model that the bundle can have been exported from."""
    return next((each for each in loaded.values() if _fits(bundle, each)), None)


def _fits(bundle: Bundle, original: LoadedCheckpoint) -> bool:
    manifest, model = bundle.manifest, original.model
    same_size = manifest.width == model.config.hidden_size
    return (
        same_size
        and set(manifest.exit_layers) <= set(model.exits)
        and manifest.num_layers == model.exits[-1]
        and manifest.labels == tuple(model.labels)
    )


def _check_originals(
    loaded: dict[Path, LoadedCheckpoint], used: dict[Path, LoadedCheckpoint | None]
) -> None:
    for folder, model in loaded.items():
        if not any(model is each for each in used.values()):
            raise _unfit(folder)


def _unfit(folder: Path) -> TrainingFailed:
    return TrainingFailed(
        f"--model {folder}: no bundle that is measured has its layers, width and labels; "
        "name the model that a bundle was exported from"
    )
