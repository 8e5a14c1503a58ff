"""The JSON of Hugging Face's Inference API: text and token classification."""

from typing import Any, Literal

from pydantic import Field

from serve.api.schemas.base import ResponseModel, SparseModel, examples
from serve.validation import RequestModel


class HuggingFaceParameters(RequestModel):
    """Parameters of both tasks; the last four are Offramp's own."""

    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = Field(
        default=None, description="From logits to scores. Default: that of transformers' pipeline."
    )
    top_k: int | None = Field(default=None, ge=1, description="Return only the k best labels.")
    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] | None = Field(
        default=None, description="For token classification: how tokens become entities."
    )
    ignore_labels: list[str] | None = Field(
        default=None,
        max_length=1000,
        fail_fast=True,
        description="Entities of these labels are left out.",
    )
    truncation: bool | None = Field(default=None, description="Cut texts that are too long.")
    exit: Any = Field(default=None, description="As in /v1/classify: target, rule or profile.")
    timeout_ms: float | None = Field(default=None, description="As in /v1/classify.")
    priority: str | None = Field(default=None, description="As in /v1/classify.")


class HuggingFaceRequest(RequestModel):
    """One text or several, and how to answer."""

    model_config = examples({"inputs": "The movie was awesome.", "parameters": {"top_k": 1}})

    inputs: Any = Field(description="A text, an object with text and text_pair, or a list of them.")
    parameters: HuggingFaceParameters | None = None


class HuggingFaceLabel(ResponseModel):
    """A label and its score."""

    label: str
    score: float | None


class HuggingFaceEntity(SparseModel):
    """An entity; with the strategy `none`, its label is in `entity`, else in `entity_group`."""

    entity_group: str | None = None
    entity: str | None = None
    score: float
    word: str
    start: int | None
    end: int | None
