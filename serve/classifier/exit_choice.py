"""`--active-exits`: from what the operator wrote to the exit layers that a model uses."""

import logging

from serve.bundle.loader import Bundle
from serve.classifier.active_exits import Candidate, cheapest_exits
from serve.classifier.exit_costs import ExitCosts, measure_exit_costs
from serve.engine.executor import ModelShape
from serve.errors import InvalidRequest
from serve.policy.served_ladder import TYPICAL_TOKENS
from serve.policy.target import TargetChoice
from serve.rules import LearnedRule
from serve.runtime.placement import Placement, build_runner
from serve.runtime.process_memory import give_back_memory

log = logging.getLogger(__name__)

AUTO = "auto"


def choose_exits(
    wanted: str,
    bundle: Bundle,
    placement: Placement,
    num_threads: int,
    gpu_memory_gb: float | None = None,
) -> list[int]:
    """Return the exit layers to use, ascending.

    To be called once per deployment: replicas that measured for themselves might choose
    differently, and the same text would get different answers.

    Args:
        wanted: layers, comma separated, or `auto` for those under which the bundle's default
            rule takes the least time on this machine. Where the default is a target, `auto` is
            all exits: with others nothing would be certified.
        bundle: the model.
        placement: the device and the variant that will run.
        num_threads: of the replica that will run it.
        gpu_memory_gb: bound on the process's memory on a GPU. A process has one bound, and this
            one may go on to serve.

    Raises:
        InvalidRequest: a layer without an exit, or a bundle without what `auto` needs.
    """
    if wanted != AUTO:
        return _named(wanted, bundle)
    manifest, recording = bundle.manifest, bundle.recording
    wish = manifest.policy.wish_for(None)
    if isinstance(wish, TargetChoice):
        log.warning(
            "--active-exits auto: %s keeps all exits, because its default is a target, and a rule "
            "is certified for the exits that it was certified with",
            bundle.name,
        )
        return list(manifest.exit_layers)
    default = manifest.policy.limits.applied_to(wish)
    if isinstance(default, LearnedRule):
        raise InvalidRequest(
            f"--active-exits auto: the default rule of {bundle.name} goes by predicted errors, "
            "which a recording does not hold; name the layers"
        )
    if recording is None:
        # No recording is made of taggers, see `models.evaluation`.
        remedy = "run `offramp evaluate` on the model and export it again, or name the layers"
        if manifest.task == "token":
            remedy = "there is none of models that label tokens: name the layers"
        raise InvalidRequest(
            f"--active-exits auto: bundle {bundle.name} has no recording of what its exits say; "
            f"{remedy}"
        )
    costs = _measure(bundle, placement, num_threads, gpu_memory_gb)
    give_back_memory()
    temperatures = tuple(e.temperature for e in manifest.exits)
    candidate = Candidate(manifest.traits, temperatures, recording, costs)
    chosen = cheapest_exits(
        candidate,
        default,
        lambda active: _fits(bundle, [manifest.exit_layers[i] for i in active]),
    )
    return [manifest.exit_layers[i] for i in chosen]


def _measure(
    bundle: Bundle, placement: Placement, num_threads: int, gpu_memory_gb: float | None
) -> ExitCosts:
    runner = build_runner(bundle, placement, num_threads, gpu_memory_gb)
    manifest = bundle.manifest
    temperatures = tuple(e.temperature for e in manifest.exits)
    shape = ModelShape(manifest.traits, temperatures, manifest.pad_id)
    return measure_exit_costs(runner, shape, min(TYPICAL_TOKENS, manifest.max_tokens))


def _fits(bundle: Bundle, layers: list[int]) -> bool:
    try:
        bundle.presenting(layers)
    except InvalidRequest:
        return False
    return True


def _named(wanted: str, bundle: Bundle) -> list[int]:
    try:
        layers = [int(part) for part in wanted.split(",")]
    except ValueError:
        raise InvalidRequest(
            f"--active-exits {wanted!r}: must be {AUTO} or layers such as 2,4,6"
        ) from None
    bundle.presenting(layers)
    return layers
