"""`offramp recommend`: what a target becomes here, what it saves and what it may cost."""

from collections.abc import Iterator, Sequence

from models.certification.card import describe_loss, percent
from models.certification.risk_control import rows_needed
from models.evaluation.tables import describe_rule
from serve.bundle.loader import Bundle
from serve.classifier.ladder import serve_ladder
from serve.engine.executor import ModelShape
from serve.policy.ladder import Certificate, Ladder, Rung
from serve.policy.limits import Limits
from serve.policy.resolution import ServedRung, resolve
from serve.policy.served_ladder import ServedLadder
from serve.policy.target import Target
from serve.runtime.hardware import available_threads
from serve.runtime.placement import Placement, build_runner


def recommend(bundle: Bundle, placement: Placement, target: Target) -> Iterator[tuple[str, str]]:
    """Yield what there is to say about a target, as pairs of a heading and a sentence.

    Args:
        bundle: with the exits that are active.
        placement: the device and the variant.
        target: what is wanted.

    Raises:
        TargetOutOfReach: no rung keeps all bounds; the message names the nearest.
    """
    certified = bundle.ladder(placement.precision)
    ladder = _served(bundle, placement, certified)
    rungs = ladder.rungs(Limits())
    found = resolve(target, rungs)
    rung, full = found.rung, rungs[0]
    if ladder.uncertified:
        yield "note", ladder.uncertified
    yield "rule", describe_rule(rung.rule)
    yield "saves", _saved(rung, full, ladder.mean_tokens)
    if certified:
        yield "may cost", _cost(rung, found.certificate, certified)
        yield "how sure", _sureness(rung, found.certificate)
        yield from (("more texts", s) for s in _more_texts(certified, rung, target))


def _served(bundle: Bundle, placement: Placement, certified: Ladder | None) -> ServedLadder:
    manifest = bundle.manifest
    temperatures = tuple(e.temperature for e in manifest.exits)
    shape = ModelShape(
        manifest.traits, certified.temperatures if certified else temperatures, manifest.pad_id
    )
    runner = build_runner(bundle, placement, available_threads())
    return serve_ladder(bundle, placement.precision, runner, shape)


def _saved(rung: ServedRung, full: ServedRung, mean_tokens: float) -> str:
    if rung.full_depth:
        return f"nothing: all {full.expected_layers:g} layers run, in {full.expected_ms:.2f} ms"
    return (
        f"{rung.expected_layers:.2f} of {full.expected_layers:g} layers run in the mean; "
        f"{rung.expected_ms:.2f} ms instead of {full.expected_ms:.2f} ms, {rung.speedup:.1f} times "
        f"as fast, for a lone text of {mean_tokens:.0f} tokens on this machine"
    )


def _cost(rung: ServedRung, certificate: Certificate | None, ladder: Ladder) -> str:
    if rung.full_depth:
        return "nothing: every answer is full depth's"
    if certificate is None:
        return f"unknown: {100 * (rung.disagreement or 0):.2f} % of the certifying texts differed"
    loss = describe_loss(certificate.loss, ladder)
    return f"{loss}: at most {percent(certificate.epsilon)}"


def _sureness(rung: ServedRung, certificate: Certificate | None) -> str:
    if rung.full_depth:
        return "certain: full depth needs no certificate"
    if certificate is None:
        return "not certified"
    return (
        f"the bound fails to hold with probability {certificate.delta:g} at most; "
        f"{certificate.n} texts certify it, of which {100 * certificate.observed:.2f} % counted"
    )


def _more_texts(ladder: Ladder, chosen: ServedRung, target: Target) -> Iterator[str]:
    """Yield how many texts would certify the next faster rung, if it goes on as it was seen."""
    epsilon = target.max_disagreement
    delta = _delta(ladder.rungs)
    if epsilon is None or delta is None or not 0 < epsilon < 1:
        return
    faster = [r for r in ladder.rungs if ladder.mean_layers(r) < chosen.expected_layers - 1e-9]
    if not faster:
        return
    rung = faster[0]
    needed = rows_needed(rung.disagreement, epsilon, delta)
    seen = f"{describe_rule(rung.rule)}, {ladder.mean_layers(rung):.2f} layers"
    if needed is None:
        yield (
            f"the next faster rung ({seen}) differed on {100 * rung.disagreement:.2f} %, which no "
            f"number of texts brings below {percent(epsilon)}"
        )
    else:
        yield (
            f"about {needed} certifying texts, instead of {ladder.num_certifying}, would certify "
            f"the next faster rung ({seen})"
        )


def _delta(rungs: Sequence[Rung]) -> float | None:
    return next((c.delta for rung in rungs for c in rung.certificates), None)
