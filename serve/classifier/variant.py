"""A variant of a bundle as it is served: its shape, and its certified rules with times."""

import shlex
from collections.abc import Callable
from dataclasses import replace

from serve.bundle.loader import CALIBRATION, Bundle
from serve.bundle.manifest import Manifest, Precision
from serve.classifier.exit_costs import MOST_NOISE, ExitCosts, Runner, measure_exit_costs
from serve.classifier.small_exits import OpenSmall
from serve.engine.shape import ModelShape
from serve.errors import InvalidBundle, InvalidRule
from serve.policy.ladder import Ladder
from serve.policy.served_ladder import TYPICAL_TOKENS, ServedLadder
from serve.rules import ConfidenceRule
from serve.rules.traits import listed

_COMMAND = "`offramp calibrate BUNDLE "

# What was measured in this process, by weights, exits, kind of runner and tokens. Two names of one
# bundle so have the same times.
_measured: dict[tuple[object, ...], ExitCosts] = {}


def serve_ladder(
    bundle: Bundle,
    precision: Precision,
    runner: Runner,
    shape: ModelShape,
    small: OpenSmall | None = None,
) -> ServedLadder:
    """Return the rungs of a variant, with the times of a text of the calibration's mean length.

    All are of the exits that are active, and the shape has no costs. The runner, and the small
    model in front of a bundle that has one, are used by this call alone.

    Raises:
        InvalidBundle: the model cannot follow a certified rule.
    """
    certified = bundle.ladder(precision)
    tokens = max(1, round(certified.mean_tokens)) if certified else TYPICAL_TOKENS
    weights = bundle.manifest.files[bundle.manifest.variants[precision].weights]
    tokens = min(tokens, bundle.manifest.max_tokens)
    parts = bundle.manifest.table, bundle.manifest.small
    variant = weights, bundle.manifest.exit_layers, type(runner), tokens, *parts
    costs = _measured[variant] = _quietest(
        _measured.get(variant),
        lambda: variant_costs(bundle, runner, shape, tokens, small),
    )
    missing = None if certified else why_uncertified(bundle, precision)
    try:
        return ServedLadder(
            shape.traits, shape.temperatures, costs.until_exits_ms, certified, missing, costs.noise
        )
    except InvalidRule as error:
        raise InvalidBundle(f"{bundle.folder}/{CALIBRATION}: ladders: {error}") from None


def variant_costs(
    bundle: Bundle, runner: Runner, shape: ModelShape, num_tokens: int, small: OpenSmall | None
) -> ExitCosts:
    """Time a text of so many tokens through a variant, and what is before its first layer."""
    costs = measure_exit_costs(runner, shape, num_tokens, bundle.read_table())
    return replace(costs, small_s=small_times_s(small, num_tokens)) if small else costs


def small_times_s(small: OpenSmall, num_tokens: int) -> dict[int, float]:
    """Return the seconds that a text takes through a small model until each of its exits."""
    shape = small.exits.shape
    num_tokens = min(num_tokens, small.exits.max_tokens)
    costs = measure_exit_costs(small.runner, shape, num_tokens)
    times_s = costs.until_exits_s(shape.compile(ConfidenceRule(threshold=1.0)))
    return dict(zip(shape.exits, times_s.tolist(), strict=True))


def _quietest(known: ExitCosts | None, measure: Callable[[], ExitCosts]) -> ExitCosts:
    """Return what is known, or the better of it and another try if the machine was busy."""
    known = known or measure()
    if known.noise < MOST_NOISE:
        return known
    return min(known, measure(), key=lambda costs: costs.noise)


def model_shape(manifest: Manifest) -> ModelShape:
    """Return what the engine must know of a model without a calibration."""
    temperatures = tuple(exit_.temperature for exit_ in manifest.exits)
    return ModelShape(manifest.traits, temperatures, manifest.pad_id)


def variant_shape(bundle: Bundle, precision: Precision) -> ModelShape:
    """Return what the engine must know of a variant: as it is calibrated, if it is."""
    temperatures = bundle.temperatures(precision)
    return ModelShape(bundle.traits(precision), temperatures, bundle.manifest.pad_id)


def for_operators(sentence: str, bundle: Bundle) -> str:
    """Return what is uncertified with the bundle's folder in the command; clients see BUNDLE."""
    return sentence.replace(_COMMAND, f"`offramp calibrate {shlex.quote(str(bundle.folder))} ")


def why_uncertified(bundle: Bundle, precision: Precision) -> str:
    """Return why a variant without certified rules has none, and what gives it some."""
    exits = bundle.manifest.exit_layers
    ladders = bundle.calibration.ladders
    command = f"run {_COMMAND}--data FILE"
    if not ladders:
        return f"No rule of {bundle.name} is certified: {command}`"
    of_precision = [ladder for ladder in ladders if ladder.precision == precision]
    if not of_precision:
        others = " and ".join(sorted({ladder.precision for ladder in ladders}))
        return f"Rules of {bundle.name} are certified for {others}, not for {precision}: {command}`"
    of_weights = [ladder for ladder in of_precision if _has_weights(ladder, bundle, precision)]
    if not of_weights:
        return (
            f"The certified rules of {bundle.name} are for other weights of {precision}, so they "
            f"do not hold: {command}`"
        )
    if any(ladder.exits == exits for ladder in of_weights):
        return (
            f"The certified rules of {bundle.name} are for another table or small model: {command}`"
        )
    layers = " or ".join(listed(ladder.exits) for ladder in of_weights)
    return (
        f"Rules of {bundle.name} are certified with exits at {layers}, not at {listed(exits)}: use "
        f"those exits, or {command} --active-exits {','.join(map(str, exits))}`"
    )


def _has_weights(ladder: Ladder, bundle: Bundle, precision: Precision) -> bool:
    return ladder.weights == bundle.manifest.files[bundle.manifest.variants[precision].weights]
