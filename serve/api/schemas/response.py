"""The JSON of answers, one shape of result per task."""

from typing import Annotated, TypeAlias

from pydantic import ConfigDict, Field

from serve.api.schemas.base import ResponseModel
from serve.rules.reason import Reason

# Rules bring reasons of their own.
ReasonName = Annotated[
    str, Field(json_schema_extra={"enum": [r.label for r in Reason if r is not Reason.STAYS]})
]
Signal = Annotated[
    float | None,
    Field(
        description="The rule's signal there, such as the entropy in nats, the confidence, or the "
        "number of agreeing exits; null for rules without one."
    ),
]
_ON_DEMAND = "Only if `return` asks for them. "


class ExitReport(ResponseModel):
    """Where and why an input left."""

    layer: int = Field(description="Transformer layers executed for this answer.")
    answered_by: int = Field(
        description="The layer whose exit head gave the answer: that same one, unless the rule "
        "answers with an earlier, more confident one."
    )
    layers: int = Field(description="Layers the model has.")
    reason: ReasonName
    signal: Signal


class _Passed(ResponseModel):
    # Not required: there on demand only.
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=False)

    layer: int
    signal: Signal


class LabelPassed(_Passed):
    """What an exit said; null where it gave no number."""

    label: str | None = Field(description="The best label.")
    score: float | None = Field(description="Its probability.")
    logits: list[float | None] | None = None


class ValuePassed(_Passed):
    """What an exit said; null where it gave no number."""

    value: float | None
    logits: list[float | None] | None = None


class EntitiesPassed(_Passed):
    """What an exit said; null where it gave no number."""

    num_entities: int | None
    logits: list[list[float | None]] | None = None


class _Result(ResponseModel):
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=False)

    exit: ExitReport


class _Labelled(_Result):
    exits: list[LabelPassed] | None = Field(
        default=None, description=f"{_ON_DEMAND}Every exit the input came by, its own included."
    )
    logits: list[float] | None = Field(default=None, description=f"{_ON_DEMAND}By label id.")


class SingleLabelResult(_Labelled):
    """Task `single_label`: one label for each input."""

    label: str
    score: float = Field(description="The label's probability.")
    scores: dict[str, float] = Field(description="Probability by label, best first; they sum to 1.")


class MultiLabelResult(_Labelled):
    """Task `multi_label`: any number of labels for each input."""

    labels: list[str] = Field(description="Those with a score above 0.5, best first.")
    label: str = Field(description="The best one, whether above 0.5 or not.")
    score: float = Field(description="Its probability.")
    scores: dict[str, float] = Field(
        description="Probability by label, best first; each for itself, from 0 to 1."
    )


class RegressionResult(_Result):
    """Task `regression`: a number for each input."""

    value: float
    exits: list[ValuePassed] | None = Field(
        default=None, description=f"{_ON_DEMAND}Every exit the input came by, its own included."
    )
    logits: list[float] | None = Field(default=None, description=f"{_ON_DEMAND}The value.")


class EntityFound(ResponseModel):
    """Tokens that belong together; with aggregation `none`, a single token."""

    entity: str = Field(
        description="The label; without a B- or I- where tokens have been put together."
    )
    score: float = Field(description="The label's probability; of several tokens, the mean.")
    word: str = Field(description="What the tokens are written as; not always as in the text.")
    start: int | None = Field(
        description="Where it begins in the text, in characters; null for token ids."
    )
    end: int | None = Field(description="Where it ends; the character there is none of it.")
    token_start: int = Field(
        description="Its first token's place among all of the input, special ones included."
    )
    token_end: int = Field(description="The place after its last token.")


class TokenResult(_Result):
    """Task `token`: what the input's tokens are, in order; what is labelled O is left out."""

    entities: list[EntityFound]
    exits: list[EntitiesPassed] | None = Field(
        default=None, description=f"{_ON_DEMAND}Every exit the input came by, its own included."
    )
    logits: list[list[float]] | None = Field(
        default=None, description=f"{_ON_DEMAND}By token, special ones included, and label id."
    )


Result: TypeAlias = SingleLabelResult | MultiLabelResult | RegressionResult | TokenResult


class Timing(ResponseModel):
    """Where the time went; of several inputs, the longest."""

    queue_ms: float = Field(description="From admission to the first layer.")
    compute_ms: float = Field(description="From the first layer to the answer.")
    total_ms: float = Field(description="From the request's arrival to its answer.")


class ClassifyResponse(ResponseModel):
    """Results in the order of the inputs, in the shape of the model's task."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "sst2-minilm",
                    "policy_version": 1,
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
                }
            ]
        }
    )

    model: str
    policy_version: int
    results: list[Result]
    timing: Timing
