"""Ladders made up for the tiny bundle: exits 1 to 4."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serve.bundle.loader import load_bundle
from serve.bundle.manifest import Precision
from serve.policy.ladder import Ladder, Loss
from serve.policy.served_ladder import ServedLadder
from serve.rules import CompiledRule
from serve.rules.traits import Traits
from tests.serve.support.bundles import rewrite_manifest
from tests.support.tiny import DEPTH, LABELS

TRAITS = Traits(tuple(range(1, DEPTH + 1)), LABELS)
STRICT, SAFE, BOLD, WILD = ({"rule": "entropy", "threshold": t} for t in (0.05, 0.2, 0.5, 0.9))
NEVER = {"rule": "never"}


def certificate(loss: Loss, epsilon: float, observed: float) -> dict[str, Any]:
    figures = {"epsilon": epsilon, "delta": 0.05, "n": 4000, "observed": observed}
    return {"loss": loss, **figures, "repeats": "count"}


def rung(
    rule: dict[str, Any], shares: Sequence[float], disagreement: float, *certificates: dict
) -> dict[str, Any]:
    return {
        "rule": rule,
        "exit_shares": shares,
        "disagreement": disagreement,
        "certificates": certificates,
    }


# Bounds of a made-up flag, and its rules: leaving early on either side, and on both.
DECIDED = {"negative": 0.8}
ABOVE = {"rule": "decision", "leave_above": {"negative": 0.9}}
BELOW = {"rule": "decision", "leave_below": {"negative": 0.1}}
EITHER = {**ABOVE, **BELOW}


def decisions(*shares: Sequence[float]) -> list[dict[str, Any]]:
    """Return the JSON of a flag's rungs: by default 4, 3.4, 2.5 and 1.5 layers."""
    missed, alarms = certificate("missed", 0.01, 0.002), certificate("false_alarms", 0.02, 0.01)
    shares = shares or ((0, 0, 0, 1), (0.2, 0, 0, 0.8), (0.5, 0, 0, 0.5), (0.8, 0, 0.1, 0.1))
    certified = ((NEVER,), (ABOVE, alarms), (BELOW, missed), (EITHER, missed, alarms))
    rungs = [
        rung(rule, own, 0.01 if both else 0, *both)
        for (rule, *both), own in zip(certified, shares, strict=True)
    ]
    return [{"flag": DECIDED, "num_flagged": 4000, "rungs": rungs}]


def ladder(precision: Precision = "fp32", weights: str = "0" * 64, **fields: Any) -> dict[str, Any]:
    """Return the JSON of a ladder: 4, 3.6, 2.8, 2 and 1.35 layers; nothing is sure of the last."""
    return {
        "precision": precision,
        "weights": weights,
        "exits": TRAITS.exits,
        "temperatures": [1.0] * DEPTH,
        "data": [{"name": "made/up.tsv", "rows": 8000, "sha256": "0" * 64}],
        "num_tuning": 4000,
        "num_certifying": 4000,
        "mean_tokens": 8.0,
        "metric": "accuracy",
        "rungs": [
            rung(NEVER, (0, 0, 0, 1), 0),
            rung(STRICT, (0, 0.1, 0.2, 0.7), 0.001, certificate("disagreement", 0.005, 0.001)),
            rung(
                SAFE,
                (0.1, 0.3, 0.3, 0.3),
                0.006,
                certificate("disagreement", 0.01, 0.006),
                certificate("metric", 0.005, 0.002),
            ),
            rung(
                BOLD,
                (0.4, 0.3, 0.2, 0.1),
                0.02,
                certificate("disagreement", 0.03, 0.02),
                certificate("metric", 0.02, 0.01),
            ),
            rung(WILD, (0.8, 0.1, 0.05, 0.05), 0.08),
        ],
        **fields,
    }


def without_labels(labelled: dict[str, Any]) -> dict[str, Any]:
    """Return a ladder as texts without labels make it."""
    rungs = [
        {**each, "certificates": [c for c in each["certificates"] if c["loss"] != "metric"]}
        for each in labelled["rungs"]
    ]
    return {**labelled, "metric": None, "rungs": rungs}


# What each rung loses against a made-up reference: full depth 2.2 % of the answers.
FROM_REFERENCE = ((0.022, 0.03), (0.022, 0.03), (0.025, 0.04), (0.04, 0.05), (0.09, None))


def of_reference() -> dict[str, Any]:
    """Return fields of a ladder that is certified from a reference, but for its last rung."""
    rungs = []
    for known, (seen, bound) in zip(ladder()["rungs"], FROM_REFERENCE, strict=True):
        own = (certificate("reference", bound, seen),) if bound else ()
        certificates = (*known["certificates"], *own)
        rungs.append(known | {"reference_disagreement": seen, "certificates": certificates})
    return {"rungs": rungs, "reference": {"name": "my-topics", "sha256": "1" * 64}}


def certify(folder: Path, *precisions: Precision, **fields: Any) -> Path:
    """Give a copy of the tiny bundle a ladder for each precision."""
    manifest = load_bundle(folder).manifest
    ladders = [
        {**ladder(p, manifest.files[manifest.variants[p].weights]), **fields} for p in precisions
    ]
    rewrite_manifest(folder, calibration={"ladders": ladders})
    return folder


def served(
    ms_per_layer: float = 1.0,
    certified: bool = True,
    traits: Traits = TRAITS,
    noise: float = 0.0,
    **fields: Any,
) -> ServedLadder:
    """Return the ladder, or a model's without one, on a machine of this speed."""

    def exit_times_ms(rule: CompiledRule) -> list[float]:
        return [ms_per_layer * layer for layer in traits.exits]

    known = Ladder.model_validate(ladder(**fields)) if certified else None
    missing = None if certified else "No rule of tiny is certified: run `offramp calibrate`"
    return ServedLadder(traits, (1.0,) * len(traits.exits), exit_times_ms, known, missing, noise)
