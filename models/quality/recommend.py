"""`offramp recommend`: what a target becomes here, what it saves and what it may cost."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from models.errors import UnusableData
from models.quality.card import LOST, describe_loss, percent
from models.quality.load import CLIENTS, under_load
from models.quality.reference import open_reference
from models.quality.risk_control import rows_needed
from models.quality.summary import shortage
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.classifier.exit_costs import MOST_NOISE
from serve.classifier.small_exits import open_small
from serve.classifier.variant import for_operators, serve_ladder, variant_shape
from serve.policy.flag import AnyFlag, thresholds
from serve.policy.ladder import Certificate, Ladder, Loss, Rung
from serve.policy.problems import why_full
from serve.policy.resolution import Resolution, ServedRung, resolve
from serve.policy.served_ladder import ServedLadder
from serve.policy.target import Target
from serve.rules import NeverRule
from serve.runtime.hardware import available_threads
from serve.runtime.placement import Placement, build_runner
from serve.tokenization.tokenizer import Text

_NO_FASTER = (
    "to ask the exits takes longer than they save: ask fewer, by `offramp export --exits` without "
    "those at which few texts leave, and calibrate that bundle"
)

_BUSY = "this machine is busy: they may be off by more than 10 %; ask again when it is idle"

_LINES = (
    "Of the texts that are given, two thirds certify of `calibrate` (all, beside --tuning), and "
    "three in ten of `adopt`"
)

# What is worth gathering texts for: so many of the model's layers less, and at least and at most
# so many times the present texts. From fewer, chance decides whether the rule is certified.
_WORTH_LAYERS, _WORTH_TEXTS = 0.05, (1.1, 10)


def recommend(
    bundle: Bundle,
    placement: Placement,
    target: Target,
    flag: AnyFlag | None = None,
    texts: Sequence[Text] = (),
) -> Iterator[tuple[str, str]]:
    """Yield what there is to say about a target, as pairs of a heading and a sentence.

    Args:
        bundle: with the exits that are active.
        placement: the device and the variant.
        target: what is wanted.
        flag: whose decisions the target is about; None for a target about answers.
        texts: to run under load; none to leave that out.

    Raises:
        TargetOutOfReach: no rung keeps all bounds; the message names the nearest.
    """
    certified = bundle.ladder(placement.precision)
    shape = variant_shape(bundle, placement.precision)
    runner = build_runner(bundle, placement, available_threads())
    small = open_small(bundle, placement, available_threads())
    ladder = serve_ladder(bundle, placement.precision, runner, shape, small)
    ladder = ladder.deciding(flag) if flag else ladder
    rungs = ladder.rungs(bundle.manifest.policy.limits)
    found = resolve(target, rungs)
    rung, full = found.rung, rungs[0]
    if ladder.uncertified:
        yield "note", for_operators(ladder.uncertified, bundle)
    elif why := why_full(target, found, ladder):
        yield "note", why
    yield "rule", rung.rule.text()
    yield from _times(rung, full, ladder)
    if texts and not rung.full_depth:
        yield "under load", _under_load(bundle, placement, rung, texts)
    if certified and flag:
        yield from _of_flag(found, target, certified, thresholds(flag))
    elif certified:
        yield "may cost", _cost(rung, found.certificate, certified, target)
        yield "how sure", _sureness(rung, found.certificate, target)
        yield from _from_reference(rung, full, certified)
        bound = _bound(target)
        if bound and (bound[0] != "metric" or certified.metric):
            yield "more texts", more_texts(certified, rung.expected_layers, *bound)
    asked = target.model_dump_json(exclude_none=True)
    wanted = f'"exit": {{"target": {asked}}}'
    yield "ask for it", f'{wanted}, "flag": {json.dumps(thresholds(flag))}' if flag else wanted


def _of_flag(
    found: Resolution, target: Target, ladder: Ladder, flag: dict[str, float]
) -> Iterator[tuple[str, str]]:
    """Yield what both sides of a rule cost, and what keeps it from leaving early on one."""
    rung, decided = found.rung, ladder.decided(flag)
    for loss, words in LOST.items():
        certificate = rung.certificate(loss)
        cost = "nothing: what full depth says stands"
        if certificate:
            cost = f"at most {percent(certificate.epsilon)}; {_sureness(rung, certificate)}"
        yield words, cost
        bound = target.losses.get(loss)
        if decided and bound and not certificate:
            delta = next((c.delta for r in decided.rungs for c in r.certificates), 0.05)
            yield "more texts", shortage(decided, ladder.num_certifying, loss, bound, delta)


def _times(rung: ServedRung, full: ServedRung, ladder: ServedLadder) -> Iterator[tuple[str, str]]:
    """Yield what a rule saves, and what the times do not say."""
    yield "saves", _saved(rung, full, ladder)
    if ladder.noise >= MOST_NOISE:
        yield "times", _BUSY
    if not rung.full_depth and rung.speedup <= 1:
        yield "note", _NO_FASTER


def _under_load(
    bundle: Bundle, placement: Placement, rung: ServedRung, texts: Sequence[Text]
) -> str:
    whole, rule = under_load(bundle, placement, [NeverRule(), rung.rule], texts)
    return (
        f"{rule.per_second:.0f} answers/s instead of {whole.per_second:.0f}, "
        f"{rule.per_second / whole.per_second:.1f} times as many, to {CLIENTS} clients; half of "
        f"them within {rule.p50_ms:.1f} ms instead of {whole.p50_ms:.1f}, 99 % within "
        f"{rule.p99_ms:.1f} instead of {whole.p99_ms:.1f} (the engine alone, with {len(texts)} of "
        "your texts)"
    )


def _saved(rung: ServedRung, full: ServedRung, ladder: ServedLadder) -> str:
    if rung.full_depth:
        return f"nothing: all {full.expected_layers:g} layers run, in {full.expected_ms:.2f} ms"
    return (
        f"{rung.expected_layers:.2f} of {full.expected_layers:g} layers run in the mean; "
        f"{rung.expected_ms:.2f} ms instead of {full.expected_ms:.2f} ms, {rung.speedup:.1f} times "
        f"as fast (give or take {100 * ladder.noise:.0f} %), for a lone text of "
        f"{ladder.mean_tokens:.0f} tokens on this machine"
    )


def _cost(rung: ServedRung, certificate: Certificate | None, ladder: Ladder, target: Target) -> str:
    if rung.full_depth and not target.of:
        return "nothing: every answer is full depth's"
    if certificate is None:
        seen = rung.reference_disagreement if target.of else rung.disagreement
        return f"unknown: {100 * (seen or 0):.2f} % of the certifying texts differed"
    loss = describe_loss(certificate.loss, ladder)
    return f"{loss}: at most {percent(certificate.epsilon)}"


def _from_reference(
    rung: ServedRung, full: ServedRung, ladder: Ladder
) -> Iterator[tuple[str, str]]:
    """Yield how often the rule and full depth differ from the reference, as far as it is known."""
    of_full, of_rung = full.reference_disagreement, rung.reference_disagreement
    if ladder.reference and of_full is not None and of_rung is not None:
        seen = f"full depth differs for {100 * of_full:.2f} % of the certifying texts"
        by_rule = "" if rung.full_depth else f", this rule for {100 * of_rung:.2f} %"
        yield f"from {ladder.reference.name}", seen + by_rule


def check_reference(bundle: Bundle, precision: Precision, path: Path) -> None:
    """Raise unless a bundle is certified from just this classifier, or file of answers.

    Raises:
        UnusableData: it is not.
    """
    ladder = bundle.ladder(precision)
    known = ladder.reference if ladder else None
    asked = open_reference(path, bundle.manifest.traits).reference
    if known is None or known.sha256 != asked.sha256:
        other = f", but from {known.name} with other content" if known else ""
        raise UnusableData(
            f"{bundle.name} {precision} is not certified from {asked.name}{other}: run `offramp "
            f"calibrate {bundle.folder} --data FILE --reference {path}`"
        )


def _sureness(
    rung: ServedRung, certificate: Certificate | None, target: Target | None = None
) -> str:
    if rung.full_depth and not (target and target.of):
        return "certain: full depth needs no certificate"
    if certificate is None:
        return "not certified"
    differs = certificate.loss in ("disagreement", "reference")
    counted = "as often as it came" if certificate.repeats == "count" else "once"
    return (
        f"the bound fails to hold with probability {certificate.delta:g} at most; "
        f"{certificate.n} texts certify it, each {counted}, of which "
        f"{100 * certificate.observed:.2f} % " + ("got another answer" if differs else "counted")
    )


def more_texts(ladder: Ladder, layers: float, loss: Loss, epsilon: float) -> str:
    """Return what more certifying texts would bring, if they lose as seldom as the present ones.

    Only what is worth the trouble is named: see `_WORTH_LAYERS` and `_WORTH_TEXTS`.

    Args:
        ladder: of the variant.
        layers: mean layers of the rung that is certified now.
        loss: what is bounded.
        epsilon: the bound.
    """
    present = ladder.num_certifying
    needed = list(_texts_needed(ladder, layers, loss, epsilon))
    if not needed:
        return f"would not bring a faster rule: the next one loses {percent(epsilon)} or more"
    saved = _WORTH_LAYERS * ladder.exits[-1]
    worth = [
        (num_texts, rung)
        for num_texts, rung in needed
        if _WORTH_TEXTS[0] * present <= num_texts <= _WORTH_TEXTS[1] * present
        and ladder.mean_layers(rung) <= layers - saved
    ]
    if not worth:
        return (
            f"would hardly help: what they could certify saves less than {saved:.2g} layers, takes "
            f"more than {_WORTH_TEXTS[1]} times as many texts, or needs no more texts than these, "
            "which just missed it"
        )
    parts = [
        f"about {_rounded_up(num_texts)} that certify, instead of {present}, would certify "
        f"{ladder.mean_layers(rung):.2f} layers ({rung.rule.text()})"
        for num_texts, rung in (worth[0], worth[-1])
    ]
    return f"{'; '.join(dict.fromkeys(parts))}. {_LINES}"


def _texts_needed(
    ladder: Ladder, layers: float, loss: Loss, epsilon: float
) -> Iterator[tuple[int, Rung]]:
    """Yield faster rungs, and how many texts certify each and all before it, from safe to fast."""
    delta = next((c.delta for rung in ladder.rungs for c in rung.certificates), 0.05)
    binary = loss in ("disagreement", "reference") or ladder.tolerance is None
    most, before = 0, any(rung.rule.looks_before for rung in ladder.rungs)
    for rung in ladder.rungs:
        if before and not rung.rule.looks_before:  # another path, for those who use the exits alone
            continue
        if rung.full_depth or ladder.mean_layers(rung) >= layers - 1e-9:
            continue
        seen = _seen(rung, loss)
        num_texts = None if seen is None else rows_needed(seen, epsilon, delta, binary)
        if num_texts is None:
            return
        most = max(most, num_texts)
        yield most, rung


def _rounded_up(number: int) -> int:
    """Return a number with two digits that count: more would say more than is known."""
    step = 10 ** max(0, len(str(number)) - 2)
    return -(-number // step) * step


def _bound(target: Target) -> tuple[Loss, float] | None:
    """Return the loss that a target limits first, and the limit, if it can be certified."""
    return next(((loss, most) for loss, most in target.losses.items() if most), None)


def _seen(rung: Rung, loss: Loss) -> float | None:
    if loss in ("disagreement", "reference"):
        return rung.disagreement if loss == "disagreement" else rung.reference_disagreement
    found = rung.certificate(loss)
    return found.observed if found else None
