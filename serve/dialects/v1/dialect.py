"""Our own format: POST /v1/classify."""

from dataclasses import replace
from typing import TypeAlias

from pydantic import Field

from serve.api.classify import read_fields, respond
from serve.api.context import AppContext
from serve.api.dial import has_dial
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import OWN, Route
from serve.api.schemas import ResponseModel, ShownRule, SparseModel, examples
from serve.api.shown import ExitReport, ShownScale, Signal
from serve.classifier.classify_request import ClassifyRequest
from serve.dialects.v1.answer import write
from serve.policy.ladder import Certificate
from serve.policy.rollout import Arm
from serve.policy.target import Cause

_ON_DEMAND = "Only if `return` asks for them. "
_EXITS = f"{_ON_DEMAND}Every exit on the input's way, its own included."


class _ExitOutput(SparseModel):
    layer: int
    signal: Signal


class LabelExitOutput(_ExitOutput):
    """The output of an exit; null where its logits are NaN."""

    label: str | None = Field(description="The best label.")
    score: float | None = Field(description="Its probability.")
    logits: list[float | None] | None = None


class ValueExitOutput(_ExitOutput):
    """The output of an exit; null where its logits are NaN."""

    value: float | None
    logits: list[float | None] | None = None


class EntitiesExitOutput(_ExitOutput):
    """The output of an exit; null where its logits are NaN."""

    num_entities: int | None
    logits: list[list[float | None]] | None = None


class WindowsFound(ResponseModel):
    """The windows that a text was cut into."""

    count: int
    answered: int = Field(
        description="The window that decided, counted from 0: the first to be flagged with `any`; "
        "else the one that gave the answer's label its highest score; of entities, the deepest."
    )
    start: int = Field(description="That window's first character.")
    end: int = Field(description="The character after its last.")


class _Result(SparseModel):
    exit: ExitReport
    flagged: bool | None = Field(
        default=None, description="Only with a flag: whether any label reaches its threshold."
    )
    flags: list[str] | None = Field(
        default=None, description="Only with a flag: the labels that reach their thresholds."
    )
    deferred: bool | None = Field(
        default=None,
        description="Only with a flag that defers: whether nothing flags the input, and any label "
        "reaches its `defer`.",
    )
    defers: list[str] | None = Field(
        default=None, description="Only with a flag that defers: the labels that defer the input."
    )
    windows: WindowsFound | None = Field(
        default=None, description="The windows of a text that was cut; missing for others."
    )


class _Labelled(_Result):
    exits: list[LabelExitOutput] | None = Field(default=None, description=_EXITS)
    logits: list[float] | None = Field(default=None, description=f"{_ON_DEMAND}By label id.")


class SingleLabelResult(_Labelled):
    """Task `single_label`: one label for each input."""

    label: str
    score: float = Field(description="The label's probability.")
    scores: dict[str, float] = Field(
        description="Probability by label, best first. They sum to 1, unless they are the "
        "largest of several windows."
    )


class MultiLabelResult(_Labelled):
    """Task `multi_label`: any number of labels for each input."""

    labels: list[str] = Field(description="The labels with a score above 0.5, best first.")
    label: str = Field(description="The best label, above 0.5 or not.")
    score: float = Field(description="Its probability.")
    scores: dict[str, float] = Field(
        description="Probability by label, from 0 to 1, best first; they need not sum to 1."
    )


class RegressionResult(_Result):
    """Task `regression`: a number for each input."""

    value: float
    exits: list[ValueExitOutput] | None = Field(default=None, description=_EXITS)
    logits: list[float] | None = Field(default=None, description=f"{_ON_DEMAND}The value.")


class EntityFound(ResponseModel):
    """Tokens that form an entity; with aggregation `none`, a single token."""

    entity: str = Field(
        description="The label, without its B- or I- tag unless the aggregation is `none`."
    )
    score: float = Field(description="The label's probability; of several tokens, the mean.")
    word: str = Field(description="The text of the tokens; not always written as in the input.")
    start: int | None = Field(description="First character in the text; null for token ids.")
    end: int | None = Field(description="The character after the last; null for token ids.")
    token_start: int = Field(
        description="Place of the first token in the input, special tokens included."
    )
    token_end: int = Field(description="The place after the last token.")


class TokenResult(_Result):
    """Task `token`: the entities of each input, in order; tokens labelled O are left out."""

    entities: list[EntityFound]
    exits: list[EntitiesExitOutput] | None = Field(default=None, description=_EXITS)
    logits: list[list[float]] | None = Field(
        default=None, description=f"{_ON_DEMAND}By token, special tokens included, and label id."
    )


Result: TypeAlias = SingleLabelResult | MultiLabelResult | RegressionResult | TokenResult


class Timing(ResponseModel):
    """Times of the request; with several inputs, of the slowest."""

    queue_ms: float = Field(description="From admission to the first layer.")
    compute_ms: float = Field(description="From the first layer to the answer.")
    total_ms: float = Field(description="From the request's arrival to its answer.")


_OF_TARGET = "Only if a target was asked for, by the request or by its profile or default. "


class ClassifyResponse(SparseModel):
    """Results in the order of the inputs, in the shape of the model's task."""

    model_config = examples(
        {
            "model": "sst2-minilm",
            "policy_version": 1,
            "score_scale": "full_depth",
            "results": [
                {
                    "label": "positive",
                    "score": 0.993,
                    "scores": {"positive": 0.993, "negative": 0.007},
                    "exit": {
                        "layer": 2,
                        "answered_by": 2,
                        "layers": 6,
                        "reason": "confident",
                        "signal": 0.0417,
                    },
                }
            ],
            "timing": {"queue_ms": 0.1, "compute_ms": 1.2, "total_ms": 1.9},
            "exit_rule": {"rule": "entropy", "threshold": 0.12},
            "expected_layers": 2.68,
            "certificate": {
                "loss": "disagreement",
                "epsilon": 0.01,
                "delta": 0.05,
                "n": 4000,
                "observed": 0.007,
            },
        }
    )

    model: str
    policy_version: int
    score_scale: ShownScale
    results: list[Result]
    timing: Timing
    exit_rule: ShownRule | None = Field(
        default=None, description=f"{_OF_TARGET}The rule that it has become."
    )
    expected_layers: float | None = Field(
        default=None,
        description=f"{_OF_TARGET}Mean number of layers per text, as measured at calibration.",
    )
    certificates: list[Certificate] | None = Field(
        default=None,
        description="Only under a target about the decisions of a flag: the certificates of what "
        "is missed and of false alarms. A side that the rule leaves to full depth needs none.",
    )
    certificate: Certificate | None = Field(
        default=None,
        description=f"{_OF_TARGET}With probability 1 - delta, the mean loss on texts like the n "
        "certifying ones is at most epsilon. Null where nothing is certified, and for the rule "
        "never unless the target is from a reference. It is about single windows: null if a text "
        "had several.",
    )
    arm: Arm | None = Field(
        default=None,
        description="Only while a rollout runs: whether the answer is by its candidate, or by the "
        "live policy.",
    )
    degraded: bool | None = Field(
        default=None,
        description="Only where the server was overloaded: true if some result is less than what "
        "was asked for.",
    )
    degraded_by: list[Cause] | None = Field(
        default=None,
        description="Why the answer is less than what was asked for. `overload`: a faster rule has "
        "answered, which `exit_rule` and `certificate` describe. `deadline`: some text "
        "had no time for more layers.",
    )
    note: str | None = Field(
        default=None,
        description=f"{_OF_TARGET}Only if every text runs in full, although the target allows a "
        "loss: why.",
    )


async def classify(context: AppContext, request: Request, body: ClassifyRequest) -> Response:
    """Classify one or more texts, each leaving the model when its exit rule allows."""
    if has_dial(request.headers):
        fields = body.model_dump(by_alias=True, exclude_unset=True)
        body = read_fields(fields, request.headers)
    return await respond(context, request, body, write)


V1 = replace(
    OWN,
    routes=[
        Route(
            "POST",
            "/v1/classify",
            classify,
            "classify",
            ClassifyRequest,
            tag="classify",
            shown=ClassifyResponse,
        )
    ],
)
