"""Where and why inputs left, as dialects show it: in the body, or in headers."""

from typing import Annotated, Any, Final

from pydantic import Field

from serve.api.json_encoding import short
from serve.api.schemas.base import ResponseModel
from serve.classifier.classification import Classification
from serve.classifier.score_map import ScoreScale
from serve.engine.row import Answer
from serve.rules.reason import Reason
from serve.rules.traits import Traits

# Header of guardrails under a flag that defers: whether each text is deferred.
DEFERRED: Final = "X-Offramp-Deferred"
# What `exit_headers` returns, and the one above.
ANSWERED: Final = (
    "X-Offramp-Exit-Layer",
    "X-Offramp-Exit-Reason",
    "X-Offramp-Policy-Version",
    "X-Offramp-Score-Scale",
    "X-Offramp-Exit-Rule",
    "X-Offramp-Certificate",
    "X-Offramp-Degraded",
    DEFERRED,
)

# Longer lists of layers and reasons are cut: proxies refuse heads of more than 8 KiB.
MAX_LISTED: Final = 256

# Exit rules may add reasons, so the type is a text.
ReasonName = Annotated[
    str, Field(json_schema_extra={"enum": [r.label for r in Reason if r is not Reason.STAYS]})
]
Signal = Annotated[
    float | None,
    Field(
        description="The rule's signal at this exit, such as the entropy in nats, the confidence, "
        "or the number of agreeing exits; null for rules without one."
    ),
]

ShownScale = Annotated[
    ScoreScale,
    Field(
        description="`full_depth`: scores of early exits are mapped to what full depth's would be, "
        "as fitted at calibration; the label never changes by it. `raw`: nothing was fitted, and "
        "the same text may have another score at another exit."
    ),
]


class ExitReport(ResponseModel):
    """Where and why an input left."""

    layer: int = Field(description="Transformer layers executed for this answer.")
    answered_by: int = Field(
        description="The layer whose exit head gave the answer: the exit layer, unless the rule "
        "answers with an earlier, more confident exit."
    )
    layers: int = Field(description="Layers of the model.")
    reason: ReasonName
    signal: Signal


def exit_report(traits: Traits, answer: Answer) -> dict[str, Any]:
    """Return an `ExitReport` as JSON."""
    return {
        "layer": traits.exits[answer.exit_index],
        "answered_by": traits.exits[answer.head_index],
        "layers": traits.exits[-1],
        "reason": answer.reason.label,
        "signal": short(answer.signal),
    }


def exit_headers(answered: Classification) -> dict[str, str]:
    """Return headers that say where and why each input left, in the order of the inputs."""
    exits, answers = answered.classifier.traits.exits, answered.answers[:MAX_LISTED]
    headers = {
        "X-Offramp-Exit-Layer": ",".join([str(exits[a.exit_index]) for a in answers]),
        "X-Offramp-Exit-Reason": ",".join([a.reason.label for a in answers]),
        "X-Offramp-Policy-Version": str(answered.policy_version),
        "X-Offramp-Score-Scale": answered.classifier.scores.score_scale,
    }
    if answered.resolution:
        texts = answered.resolution.texts
        headers["X-Offramp-Exit-Rule"] = texts["exit_rule"]
        headers["X-Offramp-Certificate"] = texts["certificate"]
    if answered.degraded:
        headers["X-Offramp-Degraded"] = ",".join(answered.degraded)
    return headers
