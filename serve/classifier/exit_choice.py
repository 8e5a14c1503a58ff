"""`--active-exits`: from what the operator wrote to the exit layers that a model uses."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np

from serve.bundle.loader import Bundle, parse_layers
from serve.classifier.exit_costs import ExitCosts, measure_exit_costs
from serve.classifier.variant import model_shape
from serve.errors import InvalidRequest
from serve.policy.served_ladder import TYPICAL_TOKENS
from serve.policy.target import TargetChoice
from serve.rules import ExitRule, LearnedRule
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
    # The recording has the exits alone, and the table takes none of their time.
    default = manifest.policy.limits.applied_to(wish).model_copy(update={"table": None})
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
    candidate = Candidate(Recording(manifest.traits.bare, temperatures, recording), costs)
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


Active: TypeAlias = tuple[int, ...]  # indices of exits, ascending; the last exit is among them

# 2 ** 11 subsets, since the last exit is always used. With more exits, they are dropped one by one.
MAX_EXACT = 12


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is known of the exits to choose from.

    Attributes:
        recording: what all exits gave for the calibration data.
        costs: measured on this machine.
    """

    recording: Recording
    costs: ExitCosts

    def expected_s(self, rule: ExitRule, active: Active) -> float:
        """Return the mean seconds per text if only these exits (indices) are used."""
        chosen = list(active)
        taken = self.recording.at(chosen).taken(rule)
        until_s = np.cumsum(self.costs.segment_s)[chosen]
        visits_s = self.costs.visit_s * np.arange(1, len(chosen) + 1)
        return float((until_s + visits_s)[taken.exits].mean())


def cheapest_exits(
    candidate: Candidate, rule: ExitRule, allowed: Callable[[Active], bool]
) -> Active:
    """Return the indices of the exits under which the rule's answers take the least time.

    Exact for up to `MAX_EXACT` exits. With more, exits are dropped one at a time for as long as
    that saves time.

    Args:
        candidate: the exits to choose from.
        rule: the rule that most requests use.
        allowed: tells whether a choice is possible; using all exits must be.
    """
    every = tuple(range(len(candidate.recording.traits.exits)))
    if len(every) <= MAX_EXACT:
        # Among choices of the same cost, the one with most exits serves other rules better.
        largest_first = sorted(filter(allowed, _subsets(every)), key=len, reverse=True)
        return min(largest_first, key=lambda active: candidate.expected_s(rule, active))
    return _drop_in_turn(every, allowed, lambda active: candidate.expected_s(rule, active))


def _subsets(every: Active) -> Iterator[Active]:
    """Yield all subsets that hold the last exit."""
    for size in range(len(every)):
        for chosen in combinations(every[:-1], size):
            yield (*chosen, every[-1])


def _drop_in_turn(
    every: Active, allowed: Callable[[Active], bool], expected_s: Callable[[Active], float]
) -> Active:
    best, best_s = every, expected_s(every)
    while True:
        fewer = [tuple(i for i in best if i != dropped) for dropped in best[:-1]]
        usable = [active for active in fewer if allowed(active)]
        next_best = min(usable, key=expected_s, default=best)
        next_s = expected_s(next_best)
        if next_s >= best_s:
            return best
        best, best_s = next_best, next_s
