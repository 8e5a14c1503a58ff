"""`offramp calibrate --small`: a small model's bundle becomes the front of a large one's."""

import shutil
from dataclasses import replace
from pathlib import Path

from models.errors import TrainingFailed
from models.quality.stored import repair, store_before
from models.staging import FolderKind, check_writable, staged
from serve.bundle.loader import MANIFEST, Bundle, load_bundle, unfit_in_front
from serve.classifier.exit_costs import measure_exit_costs
from serve.classifier.variant import model_shape
from serve.policy.served_ladder import TYPICAL_TOKENS
from serve.rules import NeverRule
from serve.rules.small import SmallModel
from serve.runtime.hardware import available_threads
from serve.runtime.placement import Placement, build_runner, place

_FRONT = FolderKind("small model", MANIFEST, TrainingFailed)


def add_small(folder: Path, small_folder: Path) -> None:
    """Copy a small model into a bundle, in the place of an older one, whose files stay.

    Args:
        folder: the large model's bundle.
        small_folder: the small model's, with the same labels in any order.

    Raises:
        OfframpError: bundles that do not fit together; nothing was written.
    """
    repair(folder)
    bundle, small = load_bundle(folder), load_bundle(small_folder)
    check_writable(bundle.folder, TrainingFailed)
    if problem := unfit_in_front(small.manifest, bundle.manifest):
        raise TrainingFailed(f"--small {small_folder}: {problem}")
    facts = SmallModel(
        name=small.name,
        sha256=small.sha256,
        exits=small.manifest.exit_layers,
        temperatures=tuple(exit_.temperature for exit_ in small.manifest.exits),
        layer_cost=_layer_cost(bundle, small),
    )
    with staged(bundle.folder / facts.folder, _FRONT) as fresh:
        for name in (MANIFEST, *small.manifest.files):
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(small.folder / name, fresh / name)
    content = (small.folder / MANIFEST).read_bytes()
    if older := bundle.manifest.small:
        files = {n: h for n, h in bundle.manifest.files.items() if n != older.manifest}
        bundle = replace(bundle, manifest=bundle.manifest.model_copy(update={"files": files}))
    store_before(bundle, {"small": facts}, {facts.manifest: content})


def _layer_cost(large: Bundle, small: Bundle) -> float:
    """Return the time of one of the small model's layers in those of the large one, here."""
    placement = place(large, "auto", "auto")
    return round(_layer_s(small, placement) / _layer_s(large, placement), 4)


def _layer_s(bundle: Bundle, placement: Placement) -> float:
    """Return the seconds of a layer of a lone text that runs to the last exit."""
    runner = build_runner(bundle, placement, available_threads())
    shape = model_shape(bundle.manifest)
    costs = measure_exit_costs(runner, shape, min(TYPICAL_TOKENS, bundle.manifest.max_tokens))
    return float(costs.until_exits_s(shape.compile(NeverRule()))[-1]) / bundle.manifest.num_layers
