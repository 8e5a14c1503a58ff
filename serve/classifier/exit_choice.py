"""`--active-exits`: from what the operator wrote to the exit layers that a model uses."""

import logging

from serve.bundle.loader import Bundle, parse_layers
from serve.classifier.active_exits import Candidate, cheapest_exits
from serve.classifier.exit_costs import ExitCosts, measure_exit_costs
from serve.classifier.variant import model_shape
from serve.errors import InvalidRequest
from serve.policy.served_ladder import TYPICAL_TOKENS
from serve.policy.target import TargetChoice
from serve.rules import LearnedRule
from serve.rules.replay import Recording
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
        num_threads: threads of the replica that will run it.
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
        # No recording is made of taggers, see `models.training.measured`.
        remedy = (
            "`offramp train` writes one into a model's folder, from which export takes it; name "
            "the layers"
        )
        if manifest.task == "token":
            remedy = "there is none of models that label tokens: name the layers"
        raise InvalidRequest(
            f"--active-exits auto: bundle {bundle.name} has no recording of what its exits say; "
            f"{remedy}"
        )
    costs = _measure(bundle, placement, num_threads, gpu_memory_gb)
    give_back_memory()
    temperatures = tuple(e.temperature for e in manifest.exits)
    candidate = Candidate(Recording(manifest.traits, temperatures, recording), costs)
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
    tokens = min(TYPICAL_TOKENS, bundle.manifest.max_tokens)
    return measure_exit_costs(runner, model_shape(bundle.manifest), tokens)


def _fits(bundle: Bundle, layers: list[int]) -> bool:
    try:
        bundle.presenting(layers)
    except InvalidRequest:
        return False
    return True


def _named(wanted: str, bundle: Bundle) -> list[int]:
    layers = list(parse_layers("--active-exits", wanted, f"{AUTO} or "))
    bundle.presenting(layers)
    return layers
