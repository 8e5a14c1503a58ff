"""The JSON of KServe's protocol V1."""

from typing import Any

from pydantic import Field

from serve.api.exit_report import ExitReport
from serve.api.schemas.base import ResponseModel, examples
from serve.classifier.classify_request import MAX_LIST
from serve.validation import RequestModel


class KServeParameters(RequestModel):
    """Parameters of the answer; all are Offramp's own."""

    truncate: bool | None = Field(default=None, description="Cut texts that are too long.")
    exit: Any = Field(default=None, description="As in /v1/classify: target, rule or profile.")
    timeout_ms: float | None = Field(default=None, description="As in /v1/classify.")
    priority: str | None = Field(default=None, description="As in /v1/classify.")


class KServeRequest(RequestModel):
    """The inputs, and how to answer."""

    model_config = examples(
        {"instances": ["The movie was awesome."]},
        {
            "instances": [{"text": "A dog runs.", "text_pair": "An animal moves."}],
            "parameters": {"exit": {"target": {"max_disagreement": 0.01}}},
        },
    )

    instances: list[Any] = Field(
        max_length=MAX_LIST,
        description="Texts, objects with text and text_pair, or objects with input_ids.",
    )
    parameters: KServeParameters | None = None


class KServeResponse(ResponseModel):
    """The answers, one for each instance."""

    predictions: list[dict[str, float | None]] = Field(
        description="The probability of each label, the answer first; for a regression its value."
    )
    exits: list[ExitReport] = Field(description="Where and why each instance left.")
