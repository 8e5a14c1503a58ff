"""The models of a report: bundles in each precision, and checkpoints of any format."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.checkpoints import LoadedCheckpoint, load
from models.evaluation.costs import (
    LAYERS,
    MFLOPS,
    MFLOPS_LINEAR,
    MS,
    Cost,
    Costs,
    TimeCost,
    layer_costs,
)
from models.evaluation.flops import flops_by_exit, num_parameters
from models.model_folder import read_policy
from models.recorded import BundleSource, Source, TorchSource
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision, TrainedFor
from serve.classifier.exit_costs import measure_exit_costs
from serve.classifier.variant import model_shape
from serve.policy.document import DEFAULT, Policy
from serve.policy.flag import AnyFlag
from serve.policy.ladder import Ladder
from serve.policy.limits import Limits
from serve.policy.profile import RuleOrTarget
from serve.runtime.hardware import available_threads
from serve.runtime.placement import Placement, build_runner

_NOT_COUNTED = (
    "a bundle holds graphs, not the modules that PyTorch's counter reads: name the model that it "
    "was exported from by --model"
)
_NOT_TIMED = (
    "a checkpoint runs in PyTorch here, whose times say little of the server's: export it, and "
    "evaluate the bundle"
)


@dataclass(frozen=True)
class Subject:
    """A model in one precision, as the report names it.

    Attributes:
        name: told apart from the other models of the report.
        origin: what it was read from, such as `bundle` or `DeeBERT checkpoint`.
        precision: what it computes in.
        trained_for: the method and the rule that its heads were trained for, if they are known.
        profiles: rules and targets that its policy names, and the default if it has no name.
        served: which of them requests without `exit` get.
        flags: the flags of profiles that have one, by their names.
        limits: of the policy.
        ladder: certified rules of just this variant.
        num_parameters: None where the model's modules are not at hand.
        unknown: why a cost is not known, by its unit.
    """

    name: str
    origin: str
    precision: Precision
    trained_for: TrainedFor = field(default_factory=TrainedFor)
    profiles: Mapping[str, RuleOrTarget] = field(default_factory=dict)
    flags: Mapping[str, AnyFlag] = field(default_factory=dict)
    served: str = DEFAULT
    limits: Limits = field(default_factory=Limits)
    ladder: Ladder | None = None
    num_parameters: int | None = None
    unknown: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Model:
    """A model that has been loaded.

    Attributes:
        subject: what the report says of it.
        source: runs texts.
        costs: from (rows,) tokens to what texts cost, as far as that is known.
    """

    subject: Subject
    source: Source
    costs: Callable[[NDArray[np.intp]], Costs]


def bundle_model(
    bundle: Bundle, placement: Placement, name: str, original: LoadedCheckpoint | None = None
) -> Model:
    """Return a bundle in one precision; its operations are counted of what it was exported from."""
    manifest = bundle.manifest
    exits = manifest.exit_layers

    def costs(num_tokens: NDArray[np.intp]) -> Costs:
        known: dict[str, Cost] = {
            LAYERS: layer_costs(exits, len(num_tokens)),
            MS: _times(bundle, placement, num_tokens),
        }
        if original:
            known |= flops_by_exit(original.model, num_tokens, exits)
        return known

    subject = Subject(
        name=name,
        origin="bundle",
        precision=placement.precision,
        trained_for=manifest.trained_for,
        **_profiles(manifest.policy),
        flags=manifest.policy.profile_flags,
        limits=manifest.policy.limits,
        ladder=bundle.ladder(placement.precision),
        num_parameters=num_parameters(original.model) if original else None,
        unknown={} if original else dict.fromkeys((MFLOPS, MFLOPS_LINEAR), _NOT_COUNTED),
    )
    return Model(subject, BundleSource(bundle, placement), costs)


def checkpoint_model(folder: Path, name: str) -> Model:
    """Load a checkpoint of any format that can be exported.

    Raises:
        UnusableCheckpoint: the folder holds none that can be served.
    """
    loaded = load(folder)
    model = loaded.model

    def costs(num_tokens: NDArray[np.intp]) -> Costs:
        layers = layer_costs(model.exits, len(num_tokens))
        return {LAYERS: layers, **flops_by_exit(model, num_tokens)}

    policy = read_policy(folder) or loaded.policy
    subject = Subject(
        name=name,
        origin=f"{loaded.info.format} checkpoint",
        precision="fp32",
        trained_for=loaded.trained_for,
        **_profiles(policy),
        limits=policy.limits,
        num_parameters=num_parameters(model),
        unknown={MS: _NOT_TIMED},
    )
    return Model(subject, TorchSource(model, loaded.tokenizer, loaded.max_tokens), costs)


def _profiles(policy: Policy) -> dict[str, Any]:
    if isinstance(policy.default, str):
        return {"profiles": policy.profile_wishes, "served": policy.default}
    return {"profiles": policy.wishes, "served": DEFAULT}


def _times(bundle: Bundle, placement: Placement, num_tokens: NDArray[np.intp]) -> TimeCost:
    runner = build_runner(bundle, placement, available_threads())
    shape = model_shape(bundle.manifest)
    return TimeCost(measure_exit_costs(runner, shape, round(float(num_tokens.mean()))))
